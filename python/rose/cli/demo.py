"""`rose demo`: the whole path once, with a real model and real documents."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Annotated

import typer

from rose.cli.failure import EXIT_REFUSED, fail
from rose.cli.table import ranking_table

QUERY = "How do bees find their way back to the hive?"
DOCUMENTS = (
    "Honeybees navigate by the sun: they know its movement across the sky and read the "
    "polarization of light when clouds hide it.",
    "A forager that returns from rich flowers dances on the comb; the angle and the length of "
    "the waggle run tell her sisters direction and distance.",
    "Close to the nest, bees recognize landmarks and the scent of their own colony, and guards "
    "at the entrance let them in.",
    "Beekeepers move hives at night, when all foragers are inside, and never by a few metres, "
    "or the bees fly to the old place.",
    "Homing pigeons return over hundreds of kilometres, led by the sun, smells and probably the "
    "magnetic field of the Earth.",
    "Honey keeps for years since it holds too little water for microbes to grow.",
    "The satellites of a navigation system carry atomic clocks; a receiver finds its place from "
    "the travel time of at least four signals.",
    "Beeswax melts at about 63 °C and has been made into candles since antiquity.",
    "Bumblebees shake pollen out of tomato flowers by buzzing with their flight muscles.",
    "Paris is the capital of France and lies on the Seine.",
)
START_SECONDS = 120.0


def demo(
    model: Annotated[str, typer.Option(help="As for `rose serve`.")] = "demo",
) -> int:
    """Starts a server, ranks ten documents over gRPC, prints the ranking, stops the server."""
    command = [sys.executable, "-m", "rose.cli", "serve", model]
    command += ["--grpc-address", "127.0.0.1:0", "--http-address", "off", "--log-level", "warn"]
    # Options of another server in the environment are not the demo's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ROSE_SERVE_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            ready = _ready_line(server)
            if ready is None:
                return fail("the server did not start; its own words are above", EXIT_REFUSED)
            print(f"$ rose serve {model}\n{ready}\n")
            address = dict(p.split("=", 1) for p in ready.split()[1:])["grpc"]
            print(f">>> rose.Client('{address}').score('{QUERY}', {len(DOCUMENTS)} documents)")
            for line in _ranking(address):
                print(line)
        finally:
            server.terminate()
    return server.returncode


def _ready_line(server: subprocess.Popen[str]) -> str | None:
    """The server's one line on stdout; None when it ends, or is silent for too long."""
    assert server.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if select.select([server.stdout], [], [], left)[0]:
            line = server.stdout.readline().strip()
            return line if line.startswith("ready ") else None
    return None


def _ranking(address: str) -> list[str]:
    from rose.client import Client

    with Client(address) as client:
        started = time.perf_counter()
        result = client.score(QUERY, DOCUMENTS)
        milliseconds = (time.perf_counter() - started) * 1e3
    rows = [(p.score, str(p.index), p.document) for p in result.ranked(DOCUMENTS)]
    return [
        *ranking_table(rows),
        f"\n{len(DOCUMENTS)} documents, {result.usage.input_tokens} tokens, "
        f"{milliseconds:.1f} ms over gRPC, model {result.model}",
    ]
