# SPDX-License-Identifier: Apache-2.0
"""
A web application that sends messages.  Its server has threads and knows nothing of
Twisted, so the reactor has a thread of its own::

    .venv/bin/python examples/web_app.py 127.0.0.1:9876 8000
    curl --data 'a cup of tea' http://127.0.0.1:8000/Orders

This is WSGI with Python's own server.  With Flask, L{Sender} is the same, and a view
replaces L{application}::

    sender = Sender(os.environ["NAMESRV_ADDR"])
    atexit.register(sender.stop)

    @app.post("/<topic>")
    def post(topic):
        return {"id": sender.send(topic, request.get_data())}, 202

Make the sender in the process that serves, and not before it forks: gunicorn has
C{post_fork} for that.  In FastAPI the same C{send} belongs into a C{def} and not into an
C{async def}, or take asyncio_program.py for an example.
"""

import signal
import sys
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any
from wsgiref.simple_server import make_server

from twisted.internet.threads import blockingCallFromThread

from txrocket import Message
from txrocket.client import Cluster, Producer
from txrocket.errors import InvalidMessage, SendFailed


class Sender:
    """
    The reactor in a thread, and a producer that other threads use.
    """

    def __init__(self, nameServer: str) -> None:
        from twisted.internet import reactor

        self._reactor: Any = reactor
        self._producer = Producer(Cluster(nameServer, reactor), "web")
        # The main thread handles the signals.
        self._thread = Thread(target=self._reactor.run, args=(False,), daemon=True)
        self._thread.start()
        blockingCallFromThread(self._reactor, self._producer.start)

    def send(self, topic: str, body: bytes) -> str:
        """
        Send a message, and wait until the broker has it; in any thread but the
        reactor's.

        @return: its id.
        """
        result = blockingCallFromThread(self._reactor, self._producer.send, Message(topic, body))
        return result.msgId

    def stop(self) -> None:
        """
        Wait for sends in flight, and end.
        """
        blockingCallFromThread(self._reactor, self._producer.stop)
        blockingCallFromThread(self._reactor, self._producer.cluster.stop)
        self._reactor.callFromThread(self._reactor.stop)
        self._thread.join()


def application(sender: Sender) -> Callable[..., Iterable[bytes]]:
    """
    Send the body of a POST to /TOPIC to that topic.
    """

    def respond(environ: dict[str, Any], startResponse: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            status, said = "202 Accepted", sender.send(environ["PATH_INFO"].lstrip("/"), body)
        except InvalidMessage as error:
            status, said = "400 Bad Request", str(error)
        except SendFailed as error:
            status, said = "503 Service Unavailable", str(error)
        startResponse(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{said}\n".encode()]

    return respond


def main(nameServer: str, port: int) -> None:
    """
    Serve until Ctrl-C or SIGTERM.
    """
    sender = Sender(nameServer)
    with make_server("127.0.0.1", port, application(sender)) as server:

        def end(*caught: object) -> None:
            # In another thread, because it waits for the requests of this one.
            Thread(target=server.shutdown).start()

        for number in signal.SIGINT, signal.SIGTERM:
            signal.signal(number, end)
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
    sender.stop()


if __name__ == "__main__":
    address, number = (*sys.argv[1:], "127.0.0.1:9876", "8000")[:2]
    main(address, int(number))
