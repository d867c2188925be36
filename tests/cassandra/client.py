"""Cassandra as its own client sees it: CQL as lines of JSON, answers as lines of JSON.

Arguments: the port, and a user and a password where the server asks for them. The variable AUTHORITY
names the certificate to trust of a server that speaks TLS.
"""

import json
import os
import ssl
import sys

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy
from cassandra.query import tuple_factory

login = PlainTextAuthProvider(sys.argv[2], sys.argv[3]) if len(sys.argv) > 2 else None
profile = ExecutionProfile(
    load_balancing_policy=RoundRobinPolicy(), row_factory=tuple_factory, request_timeout=60
)
authority = os.environ.get("AUTHORITY")
tls = ssl.create_default_context(cafile=authority) if authority else None
if tls:
    tls.check_hostname = False
session = None


def connected():
    global session
    if session is None:
        cluster = Cluster(
            ["127.0.0.1"],
            port=int(sys.argv[1]),
            auth_provider=login,
            ssl_context=tls,
            protocol_version=4,
            reconnection_policy=ConstantReconnectionPolicy(0.2, max_attempts=None),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            session = cluster.connect()
        except Exception:
            cluster.shutdown()
            raise
    return session


def plain(value):
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "items"):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return [plain(item) for item in value]
    return str(value)


for line in sys.stdin:
    try:
        rows = connected().execute(json.loads(line), timeout=60)
        result = {"answer": [[plain(value) for value in row] for row in rows]}
    except Exception as error:  # The test shows what the client said.
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
