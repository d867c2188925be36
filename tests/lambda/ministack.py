"""MiniStack, a stand-in for AWS, with a function and a bucket.

    ministack.py BINARY RESERVED KEY SECRET

The function is `runner`, of the runtime provided.al2023: its package has a bootstrap that starts
`BINARY runner --lambda`. RESERVED of it may run at one time; more are answered 429. The bucket is
`spilled`. Both are made over AWS's API, with AWS's own library. Prints the port once they are there,
and ends, and MiniStack with it, when standard input ends. A line on standard input is answered with
the number of objects in the bucket.
"""

import ctypes
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import zipfile

from botocore.config import Config
from botocore.session import Session


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def package(binary):
    script = f"#!/bin/sh\nexec {binary} runner --lambda\n"
    entry = zipfile.ZipInfo("bootstrap")
    entry.external_attr = 0o755 << 16
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(entry, script)
    return packed.getvalue()


def main():
    binary, reserved, key, secret = sys.argv[1:]
    port = free_port()
    environment = os.environ | {"GATEWAY_PORT": str(port), "TMPDIR": os.getcwd()}
    command = [str(pathlib.Path(sys.executable).with_name("ministack"))]
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr,
        start_new_session=True, preexec_fn=die_with_parent,
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            if time.monotonic() > deadline or child.poll() is not None:
                raise
            time.sleep(0.05)
    endpoint = f"http://127.0.0.1:{port}"
    settings = {
        "endpoint_url": endpoint, "region_name": "eu-west-1",
        "aws_access_key_id": key, "aws_secret_access_key": secret,
        "config": Config(s3={"addressing_style": "path"}),
    }
    api = Session().create_client("lambda", **settings)
    variables = {
        "MILLSTREAM_TOKEN": "secret", "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret,
    }
    api.create_function(
        FunctionName="runner", Runtime="provided.al2023", Handler="bootstrap", MemorySize=1770,
        Role="arn:aws:iam::000000000000:role/runner", Timeout=120,
        Code={"ZipFile": package(binary)}, Environment={"Variables": variables},
    )
    if int(reserved):
        api.put_function_concurrency(
            FunctionName="runner", ReservedConcurrentExecutions=int(reserved)
        )
    store = Session().create_client("s3", **settings)
    here = {"LocationConstraint": "eu-west-1"}
    store.create_bucket(Bucket="spilled", CreateBucketConfiguration=here)
    print(port, flush=True)
    for _ in sys.stdin:
        uploads = store.list_multipart_uploads(Bucket="spilled").get("Uploads", [])
        objects = store.list_objects_v2(Bucket="spilled").get("Contents", [])
        print(len(objects) + len(uploads), flush=True)
    os.killpg(child.pid, signal.SIGKILL)


main()
