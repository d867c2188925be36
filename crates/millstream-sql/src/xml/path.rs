//! Reads an expression of XPath 1.0.

/// How deep expressions stand in each other at most.
const DEPTH_MAX: usize = 64;

/// How many words and signs an expression has at most: it is evaluated as deep as it is long.
const TOKENS_MAX: usize = 1_000;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(f64),
    Literal(String),
    Negative(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Call(Function, Vec<Expr>),
    /// From the root, or from the node at hand.
    Path {
        is_absolute: bool,
        steps: Vec<Step>,
    },
    /// From what an expression finds.
    Filter {
        of: Box<Expr>,
        predicates: Vec<Expr>,
        steps: Vec<Step>,
    },
}

/// An expression that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path(pub(super) Expr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Union,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) axis: Axis,
    pub(super) test: Test,
    pub(super) predicates: Vec<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    FollowingSibling,
    Parent,
    PrecedingSibling,
    Itself,
}

/// Which nodes of an axis are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Elements or attributes of any name.
    Any,
    Name(String),
    Text,
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Boolean,
    Ceiling,
    Concat,
    Contains,
    Count,
    False,
    Floor,
    Last,
    LocalName,
    Name,
    NormalizeSpace,
    Not,
    Number,
    Position,
    Round,
    StartsWith,
    String,
    StringLength,
    Substring,
    SubstringAfter,
    SubstringBefore,
    Sum,
    Translate,
    True,
}

/// Functions with how many arguments they take.
const FUNCTIONS: [(&str, Function, usize, usize); 24] = [
    ("boolean", Function::Boolean, 1, 1),
    ("ceiling", Function::Ceiling, 1, 1),
    ("concat", Function::Concat, 2, usize::MAX),
    ("contains", Function::Contains, 2, 2),
    ("count", Function::Count, 1, 1),
    ("false", Function::False, 0, 0),
    ("floor", Function::Floor, 1, 1),
    ("last", Function::Last, 0, 0),
    ("local-name", Function::LocalName, 0, 1),
    ("name", Function::Name, 0, 1),
    ("normalize-space", Function::NormalizeSpace, 0, 1),
    ("not", Function::Not, 1, 1),
    ("number", Function::Number, 0, 1),
    ("position", Function::Position, 0, 0),
    ("round", Function::Round, 1, 1),
    ("starts-with", Function::StartsWith, 2, 2),
    ("string", Function::String, 0, 1),
    ("string-length", Function::StringLength, 0, 1),
    ("substring", Function::Substring, 2, 3),
    ("substring-after", Function::SubstringAfter, 2, 2),
    ("substring-before", Function::SubstringBefore, 2, 2),
    ("sum", Function::Sum, 1, 1),
    ("translate", Function::Translate, 3, 3),
    ("true", Function::True, 0, 0),
];

const AXES: [(&str, Axis); 10] = [
    ("ancestor", Axis::Ancestor),
    ("ancestor-or-self", Axis::AncestorOrSelf),
    ("attribute", Axis::Attribute),
    ("child", Axis::Child),
    ("descendant", Axis::Descendant),
    ("descendant-or-self", Axis::DescendantOrSelf),
    ("following-sibling", Axis::FollowingSibling),
    ("parent", Axis::Parent),
    ("preceding-sibling", Axis::PrecedingSibling),
    ("self", Axis::Itself),
];

/// Operators by how close they bind, the loosest first.
const LEVELS: [&[(&str, Operator)]; 7] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[("=", Operator::Equal), ("!=", Operator::NotEqual)],
    &[
        ("<", Operator::Less),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        (">=", Operator::GreaterOrEqual),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("div", Operator::Divide), ("mod", Operator::Modulo)],
    &[("|", Operator::Union)],
];
/// The level of the operators that bind closer than a sign.
const BELOW_SIGN: usize = 6;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Literal(String),
    Name(String),
    Symbol(&'static str),
    /// A symbol or a word between two values.
    Operator(&'static str),
}

/// Reads an expression; or says what is not read.
pub(crate) fn parse(text: &str) -> Result<Path, String> {
    let tokens = tokens(text)?;
    if tokens.len() > TOKENS_MAX {
        return Err("it is too long".to_owned());
    }
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let expr = parser.expression(0)?;
    match parser.peek() {
        None => Ok(Path(expr)),
        Some(token) => Err(unexpected(token)),
    }
}

fn unexpected(token: &Token) -> String {
    match token {
        Token::Number(number) => format!("{number} is not expected there"),
        Token::Literal(text) | Token::Name(text) => format!("'{text}' is not expected there"),
        Token::Symbol(text) | Token::Operator(text) => format!("'{text}' is not expected there"),
    }
}

const SYMBOLS: [&str; 20] = [
    "::", "..", "//", "!=", "<=", ">=", "(", ")", "[", "]", "@", ",", ".", "/", "|", "+", "-", "=",
    "<", ">",
];
const OPERATORS: [&str; 14] =
    ["or", "and", "div", "mod", "*", "|", "+", "-", "=", "!=", "<", "<=", ">", ">="];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = rest.chars().next() else { return Ok(found) };
        // Only behind a value a name or a star is an operator.
        let is_behind = match found.last() {
            None | Some(Token::Operator(_)) => false,
            Some(Token::Symbol(symbol)) => matches!(*symbol, ")" | "]" | "." | ".."),
            Some(_) => true,
        };
        let second = rest.chars().nth(1);
        let is_digit = |char: Option<char>| char.is_some_and(|char| char.is_ascii_digit());
        let token;
        if is_digit(Some(first)) || (first == '.' && is_digit(second)) {
            let is_number = |char: char| char.is_ascii_digit() || char == '.';
            let end = rest.find(|char: char| !is_number(char)).unwrap_or(rest.len());
            let number = rest[..end].parse::<f64>();
            let number = number.map_err(|_| format!("'{}' is no number", &rest[..end]))?;
            (token, rest) = (Token::Number(number), &rest[end..]);
        } else if matches!(first, '\'' | '"') {
            let (literal, after) =
                rest[1..].split_once(first).ok_or("a text has no end".to_owned())?;
            (token, rest) = (Token::Literal(literal.to_owned()), after);
        } else if first.is_alphabetic() || first == '_' {
            let (name, after) = rest.split_at(name_length(rest));
            let word = OPERATORS.into_iter().find(|word| is_behind && *word == name);
            token = word.map_or_else(|| Token::Name(name.to_owned()), Token::Operator);
            rest = after;
        } else if first == '*' {
            let star = if is_behind { Token::Operator("*") } else { Token::Name("*".to_owned()) };
            (token, rest) = (star, &rest[1..]);
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| format!("'{first}' is not read"))?;
            token = match OPERATORS.contains(&symbol) {
                true => Token::Operator(symbol),
                false => Token::Symbol(symbol),
            };
            rest = &rest[symbol.len()..];
        }
        found.push(token);
    }
}

/// The length of the name that a text begins with; one colon within it is of a namespace, two are
/// of an axis.
fn name_length(text: &str) -> usize {
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.');
    let end = text.find(|char: char| !is_part(char)).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(rest) if rest.starts_with(|char: char| char.is_alphabetic() || char == '_') => {
            end + 1 + rest.find(|char: char| !is_part(char)).unwrap_or(rest.len())
        }
        _ => end,
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn is_symbol(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.tokens.get(self.at + ahead), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let is_there = self.is_symbol(0, symbol);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        match self.eat(symbol) {
            true => Ok(()),
            false => Err(format!("'{symbol}' is missing")),
        }
    }

    fn wrong<T>(&self) -> Result<T, String> {
        Err(self.peek().map_or_else(|| "it has no end".to_owned(), unexpected))
    }

    fn expression(&mut self, level: usize) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX * LEVELS.len() {
            return Err("it is nested too deep".to_owned());
        }
        let found = self.level(level);
        self.depth -= 1;
        found
    }

    fn level(&mut self, level: usize) -> Result<Expr, String> {
        let Some(operators) = LEVELS.get(level) else { return self.path() };
        if level == BELOW_SIGN && self.peek() == Some(&Token::Operator("-")) {
            self.at += 1;
            return Ok(Expr::Negative(Box::new(self.expression(level)?)));
        }
        let mut left = self.expression(level + 1)?;
        while let Some(Token::Operator(found)) = self.peek()
            && let Some((_, operator)) = operators.iter().find(|(name, _)| name == found)
        {
            self.at += 1;
            let right = self.expression(level + 1)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn path(&mut self) -> Result<Expr, String> {
        let is_call = match (self.peek(), self.is_symbol(1, "(")) {
            (Some(Token::Name(name)), true) => !matches!(name.as_str(), "text" | "node"),
            _ => false,
        };
        let of = match self.peek() {
            Some(Token::Number(number)) => {
                self.at += 1;
                Expr::Number(*number)
            }
            Some(Token::Literal(text)) => {
                self.at += 1;
                Expr::Literal(text.clone())
            }
            Some(Token::Symbol("(")) => {
                self.at += 1;
                let inner = self.expression(0)?;
                self.expect(")")?;
                inner
            }
            Some(Token::Name(name)) if is_call => self.call(name)?,
            _ => return self.location(),
        };
        let predicates = self.predicates()?;
        let steps = if self.is_symbol(0, "/") || self.is_symbol(0, "//") {
            self.steps_behind_slash()?
        } else {
            Vec::new()
        };
        Ok(match predicates.is_empty() && steps.is_empty() {
            true => of,
            false => Expr::Filter { of: Box::new(of), predicates, steps },
        })
    }

    fn call(&mut self, name: &str) -> Result<Expr, String> {
        let known = FUNCTIONS.into_iter().find(|(known, ..)| *known == name);
        let Some((_, function, least, most)) = known else {
            return Err(format!("there is no function {name}"));
        };
        self.at += 2;
        let mut args = Vec::new();
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.expression(0)?);
        }
        match (least..=most).contains(&args.len()) {
            true => Ok(Expr::Call(function, args)),
            false => Err(format!("{name} takes another number of arguments")),
        }
    }

    fn location(&mut self) -> Result<Expr, String> {
        if !self.is_symbol(0, "/") && !self.is_symbol(0, "//") {
            let mut steps = vec![self.step()?];
            steps.extend(self.steps_behind_slash()?);
            return Ok(Expr::Path { is_absolute: false, steps });
        }
        let is_root = self.is_symbol(0, "/")
            && !matches!(
                self.tokens.get(self.at + 1),
                Some(Token::Name(_) | Token::Symbol("." | ".." | "@"))
            );
        if is_root {
            self.at += 1;
            return Ok(Expr::Path { is_absolute: true, steps: Vec::new() });
        }
        Ok(Expr::Path { is_absolute: true, steps: self.steps_behind_slash()? })
    }

    /// `/step//step`
    fn steps_behind_slash(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            if self.eat("//") {
                let (axis, test) = (Axis::DescendantOrSelf, Test::Node);
                steps.push(Step { axis, test, predicates: Vec::new() });
            } else if !self.eat("/") {
                return Ok(steps);
            }
            steps.push(self.step()?);
        }
    }

    fn step(&mut self) -> Result<Step, String> {
        for (symbol, axis) in [(".", Axis::Itself), ("..", Axis::Parent)] {
            if self.eat(symbol) {
                return Ok(Step { axis, test: Test::Node, predicates: Vec::new() });
            }
        }
        let axis = match (self.peek(), self.is_symbol(1, "::")) {
            (Some(Token::Name(name)), true) => {
                let known = AXES.into_iter().find(|(known, _)| known == name);
                let (_, axis) = known.ok_or_else(|| format!("the axis {name} is not read"))?;
                self.at += 2;
                axis
            }
            _ if self.eat("@") => Axis::Attribute,
            _ => Axis::Child,
        };
        let Some(Token::Name(name)) = self.peek() else { return self.wrong() };
        self.at += 1;
        let test = match (name.as_str(), self.eat("(")) {
            ("*", false) => Test::Any,
            (_, false) => Test::Name(name.clone()),
            (kind, true) => {
                self.expect(")")?;
                match kind {
                    "text" => Test::Text,
                    "node" => Test::Node,
                    other => return Err(format!("{other}() is not read")),
                }
            }
        };
        Ok(Step { axis, test, predicates: self.predicates()? })
    }

    fn predicates(&mut self) -> Result<Vec<Expr>, String> {
        let mut predicates = Vec::new();
        while self.eat("[") {
            predicates.push(self.expression(0)?);
            self.expect("]")?;
        }
        Ok(predicates)
    }
}
