"""Whether rows are an answer to a query whose order leaves several answers open.

ORDER BY says nothing about rows with the same keys, and LIMIT may cut between them. So DuckDB is
asked for all rows with their keys: the query is taken apart as DuckDB parses it, keys that are no
columns of the answer are added to it, and LIMIT is taken away. Rows with the same keys then have to
be the same rows, in whatever order, and where the limit cuts them, some of the same rows.
"""

import json


def problem(connection, text, mine, same, alike):
    """What is wrong with the rows `mine`, or None. `same` compares a value of them, which is text,
    with one of DuckDB's, and `alike` two of DuckDB's."""
    limit, keys, rows, width = all_rows(connection, text)
    expected = len(rows) if limit is None else min(limit, len(rows))
    if len(mine) != expected:
        return f"{len(mine)} rows, DuckDB has {expected}"
    at = 0
    for peers in groups(rows, keys, alike):
        left = [row[:width] for row in peers]
        for number in range(at, min(at + len(peers), expected)):
            found = next((row for row in left if equal(mine[number], row, same)), None)
            if found is None:
                return f"row {number}: {mine[number]}, DuckDB has there {shown(left)}"
            left.remove(found)
        at += len(peers)
        if at >= expected:
            break
    return None


def shown(rows):
    return [list(map(str, row)) for row in rows[:3]] + ["..."] * (len(rows) > 3)


def equal(mine, theirs, same):
    return len(mine) == len(theirs) and all(map(same, mine, theirs))


def groups(rows, keys, alike):
    """Runs of rows with the same keys."""
    found = []
    for row in rows:
        if found and all(alike(found[-1][-1][key], row[key]) for key in keys):
            found[-1].append(row)
        else:
            found.append([row])
    return found


def all_rows(connection, text):
    """The limit of a query, the places of its keys in the rows, all rows, and how many of their
    values the query asks for."""
    names = [column[0] for column in connection.execute(text).description]
    parsed = json.loads(
        connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()[0])
    node = parsed["statements"][0]["node"]
    limit = None
    for modifier in node["modifiers"]:
        if modifier["type"] == "LIMIT_MODIFIER":
            limit = modifier["limit"]["value"]["value"]
    node["modifiers"] = [at for at in node["modifiers"] if at["type"] != "LIMIT_MODIFIER"]
    keys, added = places(node, names)
    if added:
        node["select_list"] = node["select_list"] + added
    whole = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(parsed)])
    rows = connection.execute(whole.fetchone()[0]).fetchall()
    return limit, keys, rows, len(names)


def places(node, names):
    """The places of the keys of ORDER BY, and the expressions that are to be added for them."""
    keys, added = [], []
    selected = [bare(item) for item in node.get("select_list", [])]
    for modifier in node["modifiers"]:
        for order in modifier.get("orders", []):
            key = place(order["expression"], names, selected)
            if key is None:
                key = len(names) + len(added)
                added.append(order["expression"])
            keys.append(key)
    return keys, added


def place(key, names, selected):
    """The place of a key among the columns: its number, its name, or the expression itself."""
    if key["class"] == "CONSTANT":
        return key["value"]["value"] - 1
    if key["class"] == "COLUMN_REF" and len(key["column_names"]) == 1:
        if key["column_names"][0] in names:
            return names.index(key["column_names"][0])
    # With a star among them, what follows it stands elsewhere in the rows.
    if len(selected) == len(names) and bare(key) in selected:
        return selected.index(bare(key))
    # Of a query of queries, as `t.a` for the column `a`.
    if not selected and key["class"] == "COLUMN_REF":
        return names.index(key["column_names"][-1])
    return None


def bare(expression):
    """An expression without its name and its place in the text."""
    if isinstance(expression, list):
        return [bare(item) for item in expression]
    if isinstance(expression, dict):
        return {key: bare(value) for key, value in expression.items()
                if key not in ("alias", "query_location")}
    return expression
