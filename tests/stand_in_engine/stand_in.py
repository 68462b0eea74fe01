#!/usr/bin/env python3
"""An engine for process tests: a program that behaves as SGLang or vLLM does from outside.

It stands where `engine.python` points and is called as an interpreter would be:
`stand_in.py -m sglang.launch_server --port N ...`. Variables say how it misbehaves:

STAND_IN_RECORD      write {"argv", "env", "pid"} to this file
STAND_IN_PIDS        append the number of every process that it starts
STAND_IN_HAS         the modules that this interpreter has (sglang,vllm)
STAND_IN_PRINT       a file whose bytes are written to stderr first
STAND_IN_FLOOD       then write this many lines to stdout
STAND_IN_DIE         end before it listens, "code 1" or "signal 11"
STAND_IN_COUNT       a file that counts starts, STAND_IN_DIE then holds for STAND_IN_DIE_TIMES only
STAND_IN_HANG        never listen
STAND_IN_ANSWER      the status of every answer about health; "nothing" accepts and stays silent
STAND_IN_PORT        listen on this port, whatever the command says
STAND_IN_BACKGROUND  serve in a process of its own, the first one ends with exit code 0
STAND_IN_MASK        write the blocked signals and what SIGTERM, SIGHUP, SIGCHLD do to this file
STAND_IN_WARMUP      fail: listen, then kill itself as SGLang does
STAND_IN_GATE        not ready before this file is there
STAND_IN_PARTIAL     of that many answers in turn only one is ready, until the gate opens
STAND_IN_NO_READY    have no /ready
STAND_IN_IGNORE_TERM go on after SIGTERM
STAND_IN_CHILDREN    words of: session (in a session of its own), daemon (forked twice, holds port)

It takes --uds, --grpc, --smg-grpc-mode and --ssl-* as the engines do; a gRPC server accepts
connections and says nothing.

While it runs: /slow answers when STAND_IN_RELEASE is there, /die/code/N and /die/signal/N end it.
As vLLM it finishes what runs after SIGTERM, as SGLang it does not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSIONS = {"sglang": "0.5.23", "vllm": "0.33.0"}
READY_LINE = "The server is fired up and ready to roll!"


def option(name: str) -> str:
    return os.environ.get(f"STAND_IN_{name}", "")


def say(text: str) -> None:
    os.write(2, text.encode() + b"\n")


def end(how: str) -> None:
    kind, _, number = how.replace("/", " ").partition(" ")
    if kind == "signal":
        os.kill(os.getpid(), int(number))
        time.sleep(60)
    os._exit(int(number))


def read_command(words: list[str]) -> tuple[str, argparse.Namespace]:
    """Find the engine, then parse as it would: unknown flags are its own business."""
    module = words[1] if words[:1] == ["-m"] and len(words) > 1 else ""
    engine = module.partition(".")[0]
    if engine not in (option("HAS") or "sglang,vllm").split(","):
        say(f"{sys.argv[0]}: No module named {engine}")
        raise SystemExit(1)
    if module == "sglang.cli.main":
        raise SystemExit(0)
    parser = argparse.ArgumentParser(prog="launch_server.py", allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--tokenizer-worker-num", type=int, default=1)
    for name in ("--uds", "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certs", "--ssl-cert-reqs"):
        parser.add_argument(name)
    for name in ("--grpc", "--smg-grpc-mode"):
        parser.add_argument(name, action="store_true")
    known, rest = parser.parse_known_args(words[2:])
    if "--refused" in rest:
        parser.error("unrecognized arguments: --refused")
    return engine, known


def record() -> None:
    if option("RECORD"):
        found = {"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}
        path = Path(option("RECORD"))
        path.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
        path.with_suffix(".new").rename(path)
    if option("MASK"):
        blocked = sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        ignored = [int(each) for each in numbers if signal.getsignal(each) is signal.SIG_IGN]
        Path(option("MASK")).write_text(json.dumps({"blocked": blocked, "ignored": ignored}))


def note_pid(pid: int) -> None:
    if option("PIDS"):
        with open(option("PIDS"), "a", encoding="ascii") as file:
            file.write(f"{pid}\n")


def dies_this_time() -> bool:
    if not option("DIE"):
        return False
    if not option("COUNT"):
        return True
    path = Path(option("COUNT"))
    count = int(path.read_text(encoding="ascii")) if path.exists() else 0
    path.write_text(str(count + 1), encoding="ascii")
    return count < int(option("DIE_TIMES") or "1")


def start_children() -> None:
    """After the port is taken, so that they hold it."""
    words = option("CHILDREN").split()
    if "session" in words and os.fork() == 0:
        os.setsid()
        linger()
    if "daemon" in words and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            linger()
        os._exit(0)


def linger() -> None:
    note_pid(os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    engine = ""
    num_answers = 0
    num_running = 0
    counting = threading.Lock()

    def is_ready(self) -> bool:
        with self.counting:
            self.num_answers += 1
            turn = self.num_answers % int(option("PARTIAL") or "1") == 0
        gate = option("GATE")
        if option("PARTIAL"):
            return turn or (bool(gate) and os.path.exists(gate))
        return not gate or os.path.exists(gate)


class Handler(BaseHTTPRequestHandler):
    @property
    def engine(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        match self.path:
            case "/health" | "/ready" if option("ANSWER") == "nothing":
                time.sleep(600)
            case "/health" | "/ready" if option("ANSWER"):
                self.answer(int(option("ANSWER")), {})
            case "/ready" if option("NO_READY"):
                self.answer(404, {})
            case "/health" | "/ready":
                self.answer(200 if self.engine.is_ready() else 503, {})
            case "/v1/models":
                self.answer(200, {"object": "list", "data": [{"id": "stand-in"}]})
            case "/v1/loads":
                loads = {"num_running_reqs": self.engine.num_running, "num_waiting_reqs": 0}
                self.answer(200, {"loads": [loads]})
            case "/slow":
                self.slow()
            case path if path.startswith("/die/"):
                end(path.removeprefix("/die/"))
            case _:
                self.answer(404, {})

    def slow(self) -> None:
        with self.engine.counting:
            self.engine.num_running += 1
        say(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] a slow request runs")
        while not os.path.exists(option("RELEASE")):
            time.sleep(0.01)
        self.answer(200, {"slow": True})
        with self.engine.counting:
            self.engine.num_running -= 1

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        say(f"INFO:     {self.client_address[:1]} - {format % args}")


class FileServer(Server):
    """At a socket file."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)


class SilentHandler(socketserver.BaseRequestHandler):
    """Of gRPC, what can be seen without speaking it."""

    def handle(self) -> None:
        self.request.recv(1)


def make_server(engine: str, known: argparse.Namespace) -> Server:
    if known.uds and engine == "vllm":
        return FileServer(known.uds, Handler)
    Server.address_family = socket.AF_INET6 if ":" in known.host else socket.AF_INET
    is_grpc = known.grpc or known.smg_grpc_mode
    port = int(option("PORT") or known.port)
    server = Server((known.host, port), SilentHandler if is_grpc else Handler)
    if known.ssl_certfile or known.ssl_keyfile:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(known.ssl_certfile, known.ssl_keyfile)
        context.verify_mode = ssl.VerifyMode(int(known.ssl_cert_reqs or "0"))
        if known.ssl_ca_certs:
            context.load_verify_locations(known.ssl_ca_certs)
        wrapped = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        server.socket = wrapped
    return server


def on_term(server: Server) -> None:
    if option("IGNORE_TERM"):
        say("WARNING:  SIGTERM is ignored")
        return

    def finish() -> None:
        while server.engine == "vllm" and server.num_running:
            time.sleep(0.01)
        os._exit(0)

    threading.Thread(target=finish).start()


def serve(engine: str, known: argparse.Namespace) -> None:
    server = make_server(engine, known)
    server.engine = engine
    workers = 1 if known.smg_grpc_mode else known.tokenizer_worker_num
    line = "Application startup complete." if engine == "vllm" else READY_LINE
    signal.signal(signal.SIGTERM, lambda _number, _frame: on_term(server))
    start_children()
    if option("WARMUP"):
        say("Traceback (most recent call last):\n  File x\nRuntimeError: warm-up failed")
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    early = 1 if option("PARTIAL") else 0
    for number in range(workers):
        while number >= early and option("GATE") and not os.path.exists(option("GATE")):
            time.sleep(0.01)
        say(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {line}")
    while True:
        signal.pause()


def main() -> None:
    if sys.argv[1:2] != ["-m"]:  # asked what it has installed, before engine.env is there
        sys.stdout.write(json.dumps({"version": VERSIONS[sys.argv[-1]], "module": True}))
        return
    engine, known = read_command(sys.argv[1:])
    note_pid(os.getpid())
    if option("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record()
    if option("PRINT"):
        sys.stderr.buffer.write(Path(option("PRINT")).read_bytes())
        sys.stderr.buffer.flush()
    for number in range(int(option("FLOOD") or "0")):
        sys.stdout.write(f"flood {number}\n")
    sys.stdout.flush()
    if dies_this_time():
        end(option("DIE"))
    if option("HANG"):
        while True:
            signal.pause()
    if option("BACKGROUND"):
        if os.fork():
            os._exit(0)
        note_pid(os.getpid())
    serve(engine, known)


if __name__ == "__main__":
    main()
