//! What an expression of XPath finds in the nodes of a text.

use std::ops::Range;

use super::path::{Axis, Expr, Function, Operator, Path, Step, Test};
use super::tree::{Kind, Tree};

/// How many nodes, and characters of texts, one expression may look at: in a path like `//*//*`
/// each step multiplies them.
const WORK_MAX: usize = 50_000_000;

/// What an expression finds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// Nodes in the order of the text.
    Nodes(Vec<usize>),
    Number(f64),
    Text(String),
    Boolean(bool),
}

/// Evaluates an expression from the root; or says why that is not done.
pub(crate) fn evaluate(tree: &Tree, path: &Path) -> Result<Found, String> {
    let mut evaluation = Evaluation { tree, left: WORK_MAX };
    evaluation.expr(&path.0, Context { node: 0, position: 1, last: 1 })
}

/// Where an expression is evaluated.
#[derive(Clone, Copy)]
struct Context {
    node: usize,
    position: usize,
    last: usize,
}

struct Evaluation<'a> {
    tree: &'a Tree,
    left: usize,
}

impl Found {
    /// As a boolean.
    pub(crate) fn boolean(&self) -> bool {
        match self {
            Self::Nodes(nodes) => !nodes.is_empty(),
            Self::Number(number) => *number != 0.0 && !number.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::Boolean(value) => *value,
        }
    }

    /// As a text: of nodes that of the first one.
    pub(crate) fn text(&self, tree: &Tree) -> String {
        match self {
            Self::Nodes(nodes) => nodes.first().map_or_else(String::new, |node| tree.text(*node)),
            Self::Number(number) => number_text(*number),
            Self::Text(text) => text.clone(),
            Self::Boolean(value) => value.to_string(),
        }
    }

    /// As a number.
    pub(crate) fn number(&self, tree: &Tree) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Boolean(value) => f64::from(u8::from(*value)),
            Self::Nodes(_) | Self::Text(_) => number_of(&self.text(tree)),
        }
    }
}

fn number_text(number: f64) -> String {
    match number {
        number if number.is_infinite() && number > 0.0 => "Infinity".to_owned(),
        number if number.is_infinite() => "-Infinity".to_owned(),
        0.0 => "0".to_owned(),
        number => number.to_string(),
    }
}

fn number_of(text: &str) -> f64 {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { text.parse().unwrap_or(f64::NAN) } else { f64::NAN }
}

impl Evaluation<'_> {
    fn work(&mut self, amount: usize) -> Result<(), String> {
        let left = self.left.checked_sub(amount);
        self.left = left.ok_or("it looks at too many nodes of this text")?;
        Ok(())
    }

    fn expr(&mut self, expr: &Expr, at: Context) -> Result<Found, String> {
        self.work(1)?;
        match expr {
            Expr::Number(number) => Ok(Found::Number(*number)),
            Expr::Literal(text) => Ok(Found::Text(text.clone())),
            Expr::Negative(of) => Ok(Found::Number(-self.number(of, at)?)),
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right, at),
            Expr::Call(function, args) => self.call(*function, args, at),
            Expr::Path { is_absolute, steps } => {
                let start = if *is_absolute { 0 } else { at.node };
                self.steps(vec![start], steps).map(Found::Nodes)
            }
            Expr::Filter { of, predicates, steps } => {
                let Found::Nodes(mut nodes) = self.expr(of, at)? else {
                    return Err("only nodes have parts".to_owned());
                };
                for predicate in predicates {
                    nodes = self.kept(nodes, predicate)?;
                }
                self.steps(nodes, steps).map(Found::Nodes)
            }
        }
    }

    fn text(&mut self, expr: &Expr, at: Context) -> Result<String, String> {
        let found = self.expr(expr, at)?;
        self.text_of(&found)
    }

    fn text_of(&mut self, found: &Found) -> Result<String, String> {
        if let Found::Nodes(nodes) = found
            && let Some(node) = nodes.first()
        {
            self.work(self.tree.nodes[*node].end.saturating_sub(*node))?;
        }
        let text = found.text(self.tree);
        self.work(text.len())?;
        Ok(text)
    }

    fn number(&mut self, expr: &Expr, at: Context) -> Result<f64, String> {
        let found = self.expr(expr, at)?;
        self.number_of(&found)
    }

    fn number_of(&mut self, found: &Found) -> Result<f64, String> {
        Ok(match found {
            Found::Nodes(_) => number_of(&self.text_of(found)?),
            other => other.number(self.tree),
        })
    }

    fn nodes(&mut self, expr: &Expr, at: Context) -> Result<Vec<usize>, String> {
        match self.expr(expr, at)? {
            Found::Nodes(nodes) => Ok(nodes),
            _ => Err("a function of nodes has something else as its argument".to_owned()),
        }
    }

    /// The nodes at the end of steps, each once, in the order of the text.
    fn steps(&mut self, mut nodes: Vec<usize>, steps: &[Step]) -> Result<Vec<usize>, String> {
        for step in steps {
            let mut found = Vec::new();
            for node in nodes {
                let mut candidates = self.axis(node, step)?;
                for predicate in &step.predicates {
                    candidates = self.kept(candidates, predicate)?;
                }
                self.work(candidates.len())?;
                found.extend(candidates);
            }
            found.sort_unstable();
            found.dedup();
            nodes = found;
        }
        Ok(nodes)
    }

    /// The nodes for which a predicate holds, which a number does at that place.
    fn kept(&mut self, nodes: Vec<usize>, predicate: &Expr) -> Result<Vec<usize>, String> {
        let last = nodes.len();
        let mut kept = Vec::new();
        for (at, node) in nodes.into_iter().enumerate() {
            let position = at + 1;
            let found = self.expr(predicate, Context { node, position, last })?;
            let holds = match found {
                Found::Number(number) => number == position as f64,
                other => other.boolean(),
            };
            if holds {
                kept.push(node);
            }
        }
        Ok(kept)
    }

    /// The nodes of an axis, in its order, that a step means.
    fn axis(&mut self, from: usize, step: &Step) -> Result<Vec<usize>, String> {
        let mut nodes = nodes_of(self.tree, from, step.axis);
        // Attributes in between are passed over, one by one.
        let passed = match step.axis {
            Axis::Descendant | Axis::DescendantOrSelf => {
                self.tree.nodes[from].end.saturating_sub(from)
            }
            _ => 0,
        };
        self.work(passed.max(nodes.len()) + 1)?;
        nodes.retain(|node| is_meant(self.tree, *node, step));
        Ok(nodes)
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &Expr,
        right: &Expr,
        at: Context,
    ) -> Result<Found, String> {
        use Operator::{And, Divide, Minus, Modulo, Or, Plus, Times, Union};
        let number = match operator {
            Or => {
                let holds = self.expr(left, at)?.boolean() || self.expr(right, at)?.boolean();
                return Ok(Found::Boolean(holds));
            }
            And => {
                let holds = self.expr(left, at)?.boolean() && self.expr(right, at)?.boolean();
                return Ok(Found::Boolean(holds));
            }
            Union => {
                let mut nodes = self.nodes(left, at)?;
                nodes.extend(self.nodes(right, at)?);
                nodes.sort_unstable();
                nodes.dedup();
                return Ok(Found::Nodes(nodes));
            }
            Plus => self.number(left, at)? + self.number(right, at)?,
            Minus => self.number(left, at)? - self.number(right, at)?,
            Times => self.number(left, at)? * self.number(right, at)?,
            Divide => self.number(left, at)? / self.number(right, at)?,
            Modulo => self.number(left, at)? % self.number(right, at)?,
            _ => {
                let (left, right) = (self.expr(left, at)?, self.expr(right, at)?);
                return self.compared(operator, &left, &right).map(Found::Boolean);
            }
        };
        Ok(Found::Number(number))
    }

    /// A comparison holds between nodes and a value if it does for one of the nodes.
    fn compared(
        &mut self,
        operator: Operator,
        left: &Found,
        right: &Found,
    ) -> Result<bool, String> {
        match (left, right) {
            (Found::Nodes(nodes), Found::Boolean(value))
            | (Found::Boolean(value), Found::Nodes(nodes)) => {
                let is_any = Found::Boolean(!nodes.is_empty());
                let value = Found::Boolean(*value);
                match left {
                    Found::Nodes(_) => self.compared(operator, &is_any, &value),
                    _ => self.compared(operator, &value, &is_any),
                }
            }
            (Found::Nodes(nodes), other) => {
                for node in nodes {
                    let text = Found::Text(self.text_of(&Found::Nodes(vec![*node]))?);
                    if self.compared(operator, &text, other)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (other, Found::Nodes(nodes)) => {
                for node in nodes {
                    let text = Found::Text(self.text_of(&Found::Nodes(vec![*node]))?);
                    if self.compared(operator, other, &text)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => self.values(operator, left, right),
        }
    }

    fn values(&mut self, operator: Operator, left: &Found, right: &Found) -> Result<bool, String> {
        self.work(1)?;
        let is_equality = matches!(operator, Operator::Equal | Operator::NotEqual);
        let both = [left, right];
        let any = |is: fn(&Found) -> bool| both.into_iter().any(is);
        if is_equality && !any(|found| matches!(found, Found::Number(_))) {
            let is_same = match any(|found| matches!(found, Found::Boolean(_))) {
                true => left.boolean() == right.boolean(),
                false => left.text(self.tree) == right.text(self.tree),
            };
            return Ok(is_same == (operator == Operator::Equal));
        }
        if is_equality && any(|found| matches!(found, Found::Boolean(_))) {
            let is_same = left.boolean() == right.boolean();
            return Ok(is_same == (operator == Operator::Equal));
        }
        let (left, right) = (left.number(self.tree), right.number(self.tree));
        Ok(match operator {
            Operator::Equal => left == right,
            Operator::NotEqual => left != right,
            Operator::Less => left < right,
            Operator::LessOrEqual => left <= right,
            Operator::Greater => left > right,
            _ => left >= right,
        })
    }

    /// The text of the argument of a function, or of the node at hand.
    fn text_or_own(&mut self, args: &[Expr], at: Context) -> Result<String, String> {
        match args.first() {
            Some(arg) => self.text(arg, at),
            None => self.text_of(&Found::Nodes(vec![at.node])),
        }
    }

    fn call(&mut self, function: Function, args: &[Expr], at: Context) -> Result<Found, String> {
        Ok(match function {
            Function::True => Found::Boolean(true),
            Function::False => Found::Boolean(false),
            Function::Position => Found::Number(at.position as f64),
            Function::Last => Found::Number(at.last as f64),
            Function::Boolean => Found::Boolean(self.expr(&args[0], at)?.boolean()),
            Function::Not => Found::Boolean(!self.expr(&args[0], at)?.boolean()),
            Function::Count => Found::Number(self.nodes(&args[0], at)?.len() as f64),
            Function::Sum => {
                let mut sum = 0.0;
                for node in self.nodes(&args[0], at)? {
                    sum += self.number_of(&Found::Nodes(vec![node]))?;
                }
                Found::Number(sum)
            }
            Function::Floor => Found::Number(self.number(&args[0], at)?.floor()),
            Function::Ceiling => Found::Number(self.number(&args[0], at)?.ceil()),
            Function::Round => Found::Number((self.number(&args[0], at)? + 0.5).floor()),
            Function::Number => match args.first() {
                Some(arg) => Found::Number(self.number(arg, at)?),
                None => Found::Number(self.number_of(&Found::Nodes(vec![at.node]))?),
            },
            Function::Name | Function::LocalName => {
                let node = match args.first() {
                    Some(arg) => self.nodes(arg, at)?.first().copied(),
                    None => Some(at.node),
                };
                let name = node.map_or("", |node| self.tree.name(node));
                let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
                let is_whole = function == Function::Name;
                Found::Text(if is_whole { name } else { local }.to_owned())
            }
            _ => return self.call_of_texts(function, args, at),
        })
    }

    fn call_of_texts(
        &mut self,
        function: Function,
        args: &[Expr],
        at: Context,
    ) -> Result<Found, String> {
        let text = self.text_or_own(args, at)?;
        let other = match args.get(1) {
            Some(arg) if function != Function::Substring => self.text(arg, at)?,
            _ => String::new(),
        };
        Ok(match function {
            Function::StringLength => Found::Number(text.chars().count() as f64),
            Function::NormalizeSpace => {
                let words = text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty());
                Found::Text(words.collect::<Vec<_>>().join(" "))
            }
            Function::Concat => {
                let mut all = text + &other;
                for arg in args.iter().skip(2) {
                    all += &self.text(arg, at)?;
                }
                Found::Text(all)
            }
            Function::Contains => Found::Boolean(text.contains(&other)),
            Function::StartsWith => Found::Boolean(text.starts_with(&other)),
            Function::SubstringBefore => {
                let before = text.split_once(&other).map_or("", |(before, _)| before);
                Found::Text(before.to_owned())
            }
            Function::SubstringAfter => {
                let after = text.split_once(&other).map_or("", |(_, after)| after);
                Found::Text(after.to_owned())
            }
            Function::Substring => {
                let round = |number: f64| (number + 0.5).floor();
                let start = round(self.number(&args[1], at)?);
                let end = match args.get(2) {
                    Some(length) => start + round(self.number(length, at)?),
                    None => f64::INFINITY,
                };
                let is_within = |place: usize| place as f64 >= start && (place as f64) < end;
                let chars = text.chars().enumerate().filter(|(place, _)| is_within(place + 1));
                Found::Text(chars.map(|(_, char)| char).collect())
            }
            Function::Translate => {
                let to: Vec<char> = self.text(&args[2], at)?.chars().collect();
                let from: Vec<char> = other.chars().collect();
                self.work(text.len().saturating_mul(from.len()))?;
                let translated = text.chars().filter_map(|char| {
                    match from.iter().position(|known| *known == char) {
                        Some(place) => to.get(place).copied(),
                        None => Some(char),
                    }
                });
                Found::Text(translated.collect())
            }
            _ => Found::Text(text),
        })
    }
}

/// The nodes of an axis, in its order.
fn nodes_of(tree: &Tree, from: usize, axis: Axis) -> Vec<usize> {
    let nodes = &tree.nodes;
    let end = if tree.is_attribute(from) { from } else { nodes[from].end };
    let parent = nodes[from].parent;
    let up = |first: Option<usize>| {
        std::iter::successors(first, |node| (*node > 0).then(|| nodes[*node].parent)).collect()
    };
    let above = (from > 0).then_some(parent);
    match axis {
        Axis::Itself => vec![from],
        Axis::Parent => Vec::from_iter(above),
        Axis::Ancestor => up(above),
        Axis::AncestorOrSelf => up(Some(from)),
        Axis::Attribute => (from + 1..end).take_while(|node| tree.is_attribute(*node)).collect(),
        Axis::Child => children(tree, from + 1..end),
        Axis::Descendant => (from + 1..end).filter(|node| !tree.is_attribute(*node)).collect(),
        Axis::DescendantOrSelf => {
            let within = (from + 1..end).filter(|node| !tree.is_attribute(*node));
            std::iter::once(from).chain(within).collect()
        }
        Axis::FollowingSibling if !tree.is_attribute(from) && from > 0 => {
            children(tree, end..nodes[parent].end)
        }
        Axis::PrecedingSibling if !tree.is_attribute(from) && from > 0 => {
            let mut before = children(tree, parent + 1..from);
            // From the nearest one on.
            before.reverse();
            before
        }
        Axis::FollowingSibling | Axis::PrecedingSibling => Vec::new(),
    }
}

/// The nodes of a range that are in none of the others.
fn children(tree: &Tree, range: Range<usize>) -> Vec<usize> {
    let (mut found, mut node) = (Vec::new(), range.start);
    while node < range.end {
        if !tree.is_attribute(node) {
            found.push(node);
        }
        node = tree.nodes[node].end;
    }
    found
}

/// Whether a step means a node of its axis.
fn is_meant(tree: &Tree, node: usize, step: &Step) -> bool {
    let kind = &tree.nodes[node].kind;
    let is_principal = match step.axis {
        Axis::Attribute => matches!(kind, Kind::Attribute(..)),
        _ => matches!(kind, Kind::Element(_)),
    };
    match &step.test {
        Test::Node => true,
        Test::Text => matches!(kind, Kind::Text(_)),
        Test::Any => is_principal,
        Test::Name(name) => is_principal && tree.name(node) == name,
    }
}
