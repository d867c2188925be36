"""A mail server that appends each mail, as a line of JSON, to a file.

It checks what mail servers and readers check: the syntax of headers, their number, ends of lines,
lengths of lines. It fails as its arguments say.
"""

import argparse
import asyncio
import email
import email.policy
import json
import ssl

from aiosmtpd.smtp import SMTP, AuthResult

ONCE = ["From", "To", "Subject", "Date", "Message-ID"]


def defects(content):
    """What is wrong with a mail."""
    found = []
    bare = content.replace(b"\r\n", b"")
    if b"\r" in bare or b"\n" in bare or b"\0" in bare:
        found.append("a bare CR, LF or NUL")
    if any(len(line) > 998 for line in content.split(b"\r\n")):
        found.append("a line of more than 998 bytes")
    mail = email.message_from_bytes(content, policy=email.policy.SMTP)
    found += [str(defect) for defect in mail.defects]
    for name in ONCE:
        if len(mail.get_all(name, [])) != 1:
            found.append(f"not one {name}")
    for name, value in mail.items():
        found += [f"{name}: {defect}" for defect in getattr(value, "defects", [])]
    for name in ["Bcc", "Cc"]:
        if mail.get(name) is not None:
            found.append(f"there is a {name}")
    return mail, found


class Handler:
    def __init__(self, arguments):
        self.arguments = arguments
        self.count = 0

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        self.count += 1
        if self.arguments.busy_every and self.count % self.arguments.busy_every == 0:
            return "451 4.3.2 try again later"
        mail, found = defects(envelope.content)
        record = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "id": str(mail["Message-ID"]),
            "subject": str(mail["Subject"]),
            "text": mail.get_content(),
            "raw": envelope.content.decode(),
            "defects": found,
            "tls": server.transport.get_extra_info("sslcontext") is not None,
            "user": session.auth_data if session.authenticated else None,
        }
        with open(self.arguments.mails, "a") as file:
            file.write(json.dumps(record) + "\n")
        if self.arguments.cut_every and self.count % self.arguments.cut_every == 0:
            server.transport.abort()
        return "250 OK"


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mails", required=True)
    parser.add_argument("--security", choices=["tls", "starttls", "none"], default="none")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--password")
    parser.add_argument("--busy-every", type=int, default=0)
    parser.add_argument("--cut-every", type=int, default=0)
    return parser.parse_args()


async def main():
    arguments = parse()
    context = None
    if arguments.security != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.cert, arguments.key)

    def is_right(server, session, envelope, mechanism, data):
        is_right = data.password.decode() == arguments.password
        return AuthResult(success=is_right, handled=False, auth_data=data.login.decode())

    handler = Handler(arguments)
    starttls = arguments.security == "starttls"

    def session():
        return SMTP(
            handler,
            hostname="mail.test",
            enable_SMTPUTF8=False,
            tls_context=context if starttls else None,
            require_starttls=starttls,
            authenticator=is_right if arguments.password else None,
            auth_required=bool(arguments.password),
            auth_require_tls=starttls,
        )

    implicit = context if arguments.security == "tls" else None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", arguments.port, ssl=implicit)
    await server.serve_forever()


asyncio.run(main())
