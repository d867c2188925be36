"""BigQuery as its own client sees it: commands as lines of JSON, answers as lines of JSON.

Arguments: the URL of the REST interface.
"""

import json
import sys

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

client = bigquery.Client(
    project="p",
    credentials=AnonymousCredentials(),
    client_options=ClientOptions(api_endpoint=sys.argv[1]),
)


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def answer(command):
    match command["do"]:
        case "dataset":
            client.create_dataset(command["name"], exists_ok=True)
            return None
        case "table":
            fields = [bigquery.SchemaField.from_api_repr(field) for field in command["columns"]]
            client.create_table(bigquery.Table("p." + command["name"], schema=fields))
            return None
        case "describe":
            table = client.get_table("p." + command["name"])
            return [field.to_api_repr() for field in table.schema]
        case "query":
            return [plain(list(row.values())) for row in client.query(command["sql"]).result()]


for line in sys.stdin:
    try:
        result = {"answer": answer(json.loads(line))}
    except Exception as error:  # The test shows what the client said.
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
