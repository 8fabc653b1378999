"""Options that every client command has."""

from __future__ import annotations

from typing import Annotated

import typer

Address = Annotated[
    str,
    typer.Option(
        help="HOST:PORT of the server.",
        envvar="ROSE_ADDRESS",
        metavar="HOST:PORT",
        show_envvar=True,
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for the call.", metavar="SECONDS", min=0.001)]
DEFAULT_ADDRESS = "127.0.0.1:50051"
