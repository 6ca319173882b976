"""The command line: the only module that prints or exits.

Data goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tokenwatt_site import __version__
from tokenwatt_site.commands import attest as attest_command
from tokenwatt_site.commands import check as check_command
from tokenwatt_site.commands import doctor as doctor_command
from tokenwatt_site.commands import init as init_command
from tokenwatt_site.commands import keys as keys_command
from tokenwatt_site.commands import measure as measure_command
from tokenwatt_site.commands import plan as plan_command
from tokenwatt_site.commands import progress
from tokenwatt_site.commands import reproduce as reproduce_command
from tokenwatt_site.commands import simulate as simulate_command
from tokenwatt_site.commands import trace as trace_command
from tokenwatt_site.commands import verify as verify_command
from tokenwatt_site.commands.budget import budget_s
from tokenwatt_site.commands.checks import counted, table
from tokenwatt_site.commands.committing import publisher_nonce
from tokenwatt_site.commands.own_spec import Own
from tokenwatt_site.errors import (
    EnvironmentProblem,
    GateFailed,
    Problem,
    SpecError,
    TokenwattError,
    UsageError,
)
from tokenwatt_site.measure.fleet.senders import Workers
from tokenwatt_site.measure.session import Events
from tokenwatt_site.measure.trial import Progress
from tokenwatt_site.metrics import METRICS
from tokenwatt_site.run import Run
from tokenwatt_site.spec import Role, json_schema
from tokenwatt_site.trust.recomputation import Level

P = ParamSpec("P")
R = TypeVar("R")

_err = Console(stderr=True, highlight=False)


def _tell(text: str) -> None:
    """Print a line to standard error; a reader that has gone away must not end a measurement."""
    with contextlib.suppress(OSError, ValueError):
        _err.print(text, markup=False, soft_wrap=True)


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Measure, sign, verify and publish LLM serving results that anyone can recompute.",
)
short_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Short form of tokenwatt-site: run (= measure) and report.",
)
spec_app = typer.Typer(no_args_is_help=True, help="Work with spec files.")
app.add_typer(spec_app, name="spec")
keys_app = typer.Typer(no_args_is_help=True, help="Work with signing keys.")
app.add_typer(keys_app, name="keys")


class _Display:
    """Progress of a measurement: a live table on a terminal, plain lines elsewhere."""

    PLAIN_EVERY_NS = 10_000_000_000

    def __init__(self) -> None:
        self._live = Live(console=_err, refresh_per_second=4, transient=True)
        self._shown = (-1, 0)

    def __enter__(self) -> Events:
        return Events(progress=self._progress, say=self._say)

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _say(self, text: str) -> None:
        _tell(text)

    def _progress(self, p: Progress) -> None:
        if _err.is_terminal:
            with contextlib.suppress(OSError, ValueError):
                self._live.start()  # at the first trial: before it, somebody may be asked
                self._live.update(_progress_table(p))
            return
        slot = (p.trial, p.now_ns // self.PLAIN_EVERY_NS)
        if slot != self._shown:
            self._shown = slot
            _tell(progress.line(p))


def _progress_table(p: Progress) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in progress.cells(p):
        table.add_row(name, value)
    return table


def _handled(command: Callable[P, R]) -> Callable[P, R]:
    """Print our own errors as one line each and exit with their code."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        try:
            return command(*args, **kwargs)
        except TokenwattError as error:
            for line in str(error).splitlines():
                # What is indented belongs to the line before, and may be there to be pasted.
                _tell(line if line.startswith(" ") else f"error: {line}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            _tell("interrupted")
            raise typer.Exit(130) from None

    return wrapper


def _interrupt(_signum: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


SpecOption = Annotated[
    Path | None, typer.Option("--spec", help="Spec or run file; looked for here, in specs/.")
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Where the run file goes.")]
GpusOption = Annotated[
    str | None,
    typer.Option(
        help="UUIDs of the engine's boards, with commas; where its processes are not seen."
    ),
]
BudgetOption = Annotated[str | None, typer.Option(help="How long it may take: 45m, 2h or 1h30m.")]
KeyVariableOption = Annotated[
    str | None, typer.Option(help="The environment variable with the engine's API key.")
]
KeysOption = Annotated[Path, typer.Option(help="Folder of registered keys.")]
UntilOption = Annotated[
    str | None, typer.Option(help="The last day on which it counts, such as 2027-12-31.")
]


def _version(asked: bool) -> None:  # noqa: FBT001  # typer calls it so
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    del version  # its callback did the work


@app.command()
@short_app.command("run")
@_handled
def measure(
    *,
    spec: SpecOption = None,
    label: Annotated[str | None, typer.Option(help="Short name of this run.")] = None,
    role: Annotated[Role | None, typer.Option(help="baseline or candidate.")] = None,
    out: OutOption = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a measurement that was broken off.")
    ] = None,
    gpus: GpusOption = None,
    budget: BudgetOption = None,
    commit_to: Annotated[
        Path | None, typer.Option(help="Where a signed commitment goes before anything runs.")
    ] = None,
    nonce: Annotated[
        str | None, typer.Option(help="Hex that a publisher gave, to draw prompts from too.")
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            help="Client processes that send: so many on this machine; or auto, HOST:PORT or"
            " ray://HOST:PORT, one on each node of that Ray cluster; or NUMBER@ADDRESS, so many.",
        ),
    ] = "1",
) -> None:
    """Measure a configuration and write a signed run file."""
    limit_s = None if budget is None else budget_s(budget)
    given, sending = publisher_nonce(nonce), Workers.read(workers)
    if resume is not None:
        if spec or label or role or gpus or commit_to or nonce:
            raise UsageError(
                "--resume takes spec, label, role, boards, commitment and nonce from its folder;"
                " leave them out"
            )
        wanted, folder = measure_command.resumed_spec(resume), resume
        trace, model, beside = None, None, None
    elif spec is not None:
        wanted = measure_command.read_spec(spec, label=label, role=role)
        trace = measure_command.read_trace(spec, wanted)
        model = measure_command.read_model_files(spec, wanted)
        folder = measure_command.new_folder(wanted)
        beside = measure_command.find_spec(spec).parent
    else:
        raise UsageError("give --spec FILE, or --resume FOLDER")
    named = measure_command.named_boards(gpus, wanted)
    with _Display() as events:
        path, run = measure_command.measure_and_sign(
            wanted,
            folder,
            events,
            trace=trace,
            model=model,
            gpus=named,
            beside=beside,
            out=out,
            budget_s=limit_s,
            commit_to=commit_to,
            nonce=given,
            workers=sending,
        )
    _print_summary(run)
    typer.echo(path)
    if run.claims.gate.outcome == "failed":
        raise GateFailed(run.claims.gate.text)


def _print_summary(run: Run) -> None:
    for metric in run.claims.metrics:
        if metric.value is None:
            _tell(f"  {metric.label}: no number ({metric.reason})")
        else:
            _tell(f"  {metric.label}: {metric.value:,.4g} {METRICS[metric.key].unit}")
    for answers in run.claims.accuracy:
        _tell(
            f"  answers of repeat {answers.repeat}: {answers.percent:.1f}% of"
            f" {answers.questions:,} right (95% interval {answers.low:.1f} to {answers.high:.1f})"
        )
    if run.claims.gate.outcome != "none":
        _tell(f"  {run.claims.gate.text}")


@app.command()
@_handled
def reproduce(
    run: Annotated[str, typer.Argument(help="Run file with its evidence, or the URL of one.")],
    *,
    url: Annotated[
        str | None, typer.Option(help="Base URL of an engine that runs here already.")
    ] = None,
    api_key_variable: KeyVariableOption = None,
    gpus: GpusOption = None,
    driver: Annotated[
        str | None, typer.Option(help="What drives the boards, where no instrument tells it.")
    ] = None,
    host_kind: Annotated[
        str | None, typer.Option(help="Kind of this host (provider and instance, not its name).")
    ] = None,
    out: OutOption = None,
    budget: BudgetOption = None,
    measured: Annotated[
        Path | None, typer.Option(help="Your own run of it, where it is measured already.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before the run's own command is started.")
    ] = False,
) -> None:
    """Measure somebody's run again, compare, and sign what came out."""
    asked = reproduce_command.Asked(
        own=Own(url, api_key_variable, driver, host_kind, gpus),
        measured=measured,
        out=out,
        budget_s=None if budget is None else budget_s(budget),
        yes=yes,
    )
    with _Display() as events:
        done = reproduce_command.reproduce(run, asked, events, _ask)
    if measured is None:
        _print_summary(done.again.run)
    for line in reproduce_command.lines(done, run):
        _tell(line)
    typer.echo(f"{done.compared.outcome}: {done.compared.text}")
    typer.echo(done.again.path)
    typer.echo(done.statement)
    if code := reproduce_command.EXIT_CODES[done.compared.outcome]:
        raise typer.Exit(code)


@app.command()
@_handled
def plan(
    *,
    spec: Annotated[
        Path, typer.Option("--spec", help="Spec or run file; looked for here, in specs/.")
    ],
    rate: Annotated[
        float | None, typer.Option(help="Where the boundary may be, requests/s; else start_rate.")
    ] = None,
    budget: BudgetOption = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(help="In any currency; the price comes out in the same.")
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Wanted 95% interval, in percent: 2 means ±2%.")
    ] = None,
    spread: Annotated[
        float, typer.Option(help="Standard deviation between repeats, in percent.")
    ] = plan_command.SPREAD_PERCENT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell what a measurement would take: trials, minutes, GPU-hours. Nothing is launched."""
    planned = plan_command.plan_spec(
        spec,
        plan_command.Wanted(
            rate=rate,
            budget_s=None if budget is None else budget_s(budget),
            price=price_per_gpu_hour,
            interval=interval,
            spread=spread,
        ),
    )
    if as_json:
        typer.echo(json.dumps(plan_command.to_json(planned), indent=1, ensure_ascii=False))
        return
    for line in plan_command.lines(planned):
        typer.echo(line)


@app.command()
@_handled
def verify(
    files: Annotated[list[Path], typer.Argument(help="Run files; evidence lies beside each.")],
    keys: KeysOption = verify_command.KEYS_FOLDER,
    level: Annotated[
        Level, typer.Option(help="data: without the replay of the engine model, sooner done.")
    ] = "model",
) -> None:
    """Check signature, evidence and journal, and recompute every number."""
    failed: TokenwattError | None = None
    for file in files:
        try:
            if verify_command.quoted(file) is not None:
                typer.echo(f"{file}: quoted as published, nothing to recompute")
                continue
            if (promise := verify_command.committed(file)) is not None:
                configuration = promise.commitment.opening.get("configuration")
                typer.echo(
                    f"{file}: verified, a commitment to a run of {configuration}, signed by"
                    f" {promise.keyid}; it says at {promise.commitment.at}"
                )
                continue
            checked = verify_command.verify(file, keys, level)
        except TokenwattError as error:
            _tell(f"{file}: NOT VERIFIED")
            _tell(str(error))
            failed = failed or error
            continue
        signer = f"{checked.signer}, " if checked.signer else ""
        typer.echo(
            f"{file}: verified, run {checked.run_id[:12]},"
            f" signed by {checked.keyid} ({signer}{checked.key_state} key),"
            f" {verify_command.numbers(checked)}"
        )
        for line in (*verify_command.committed_to(checked), *verify_command.stated(checked)):
            typer.echo(f"  {line}")
        for beside, why in checked.standing.unread:
            _tell(f"{beside}: NOT VERIFIED, and what is wrong in it is left out")
            _tell(str(why))
            failed = failed or why
    if failed is not None:
        raise typer.Exit(6)


@app.command()
@_handled
def attest(
    *,
    kind: Annotated[attest_command.Attestable, typer.Argument(help="What you state.")],
    run: Annotated[Path, typer.Argument(help="The run file with its evidence, or a commitment.")],
    reason: Annotated[
        str | None, typer.Option(help="Why it is disputed, settled, withdrawn or superseded.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="The run that supersedes it: its file or id.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where a dispute is discussed; https.")] = None,
    keys: KeysOption = verify_command.KEYS_FOLDER,
) -> None:
    """Verify a run or a commitment, and sign a statement that is published beside it."""
    done = attest_command.attest(kind, run, reason=reason, by=by, url=url, keys=keys)
    if done.note is not None:
        _tell(done.note)
    typer.echo(done.path)


@app.command()
@short_app.command("report")
@_handled
def report(
    files: Annotated[list[Path], typer.Argument(help="Run files; of several setups: compare.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the page goes.")] = None,
) -> None:
    """Write one self-contained HTML page: a report, or a comparison with the first one named."""
    # The library of the charts takes longer to load than all else; no other command waits for it.
    from tokenwatt_site.commands.report import report as write  # noqa: PLC0415

    typer.echo(write(files, title=title, out=out))


@spec_app.command("check")
@_handled
def check(
    files: Annotated[list[Path], typer.Argument(help="Spec files; looked for here and in specs/.")],
) -> None:
    """Check specs and print the id of the configuration that each names."""
    problems: list[Problem] = []
    for file in files:
        try:
            checked = check_command.check(file)
        except (UsageError, EnvironmentProblem) as error:
            problems += error.problems
        else:
            typer.echo(f"{file}: valid, configuration {checked.configuration}")
            for line in checked.lines:
                _tell(f"  {line}")
            if checked.missing:
                _tell("  setup.accuracy_gate does not say yet what is asked; write below it:")
                typer.echo(checked.missing)
    if problems:
        raise SpecError(*problems)


@spec_app.command("schema")
@_handled
def schema() -> None:
    """Print the JSON Schema of a spec, by which editors complete and check one."""
    typer.echo(json.dumps(json_schema(), indent=1, ensure_ascii=False))


@spec_app.command("trace")
@_handled
def trace(
    file: Annotated[
        Path, typer.Argument(help="A trace: ours, an Azure LLM trace (CSV) or Mooncake (JSONL).")
    ],
    out: Annotated[Path, typer.Option(help="The trace to write; its name is the workload's.")],
) -> None:
    """Write a trace as our own, and print the lines of a spec that plays it."""
    written = trace_command.convert(file, out)
    _tell(f"{written.path}:")
    for line in written.summary:
        _tell(f"  {line}")
    typer.echo(written.spec_lines)


@keys_app.command("new")
@_handled
def new_key() -> None:
    """Make your own signing key; one that is there is never overwritten."""
    made = keys_command.new()
    _tell(f"made {made.path}; keep it to yourself")
    typer.echo(made.keyid)


@keys_app.command("add")
@_handled
def add_key(
    name: Annotated[str, typer.Argument(help="The name to show for your runs.")],
    organisation: Annotated[str | None, typer.Option(help="Shown beside the name.")] = None,
    until: UntilOption = None,
    follows: Annotated[
        str | None, typer.Option(help="The key that yours takes over from, which names it too.")
    ] = None,
    keys: KeysOption = verify_command.KEYS_FOLDER,
) -> None:
    """Register your own signing key, so that the site shows your name."""
    written = keys_command.add(name, keys, organisation=organisation, until=until, follows=follows)
    typer.echo(written)


@keys_app.command("list")
@_handled
def list_keys(keys: KeysOption = verify_command.KEYS_FOLDER) -> None:
    """Show your own key and the registered ones, with their states."""
    for line in keys_command.listed(keys):
        typer.echo(line)


@keys_app.command("rotate")
@_handled
def rotate_key(until: UntilOption = None, keys: KeysOption = verify_command.KEYS_FOLDER) -> None:
    """Replace your own key by a new one, registered as its successor."""
    rotated = keys_command.rotate(keys, until=until)
    _tell(f"the old key is kept in {rotated.kept}; the site needs both registrations:")
    for path in rotated.written:
        typer.echo(path)


@keys_app.command("revoke")
@_handled
def revoke_key(
    reason: Annotated[str, typer.Option(help="Shown beside the runs that it signed.")],
    keyid: Annotated[
        str | None, typer.Argument(help="A key that yours follows; default your own.")
    ] = None,
    keys: KeysOption = verify_command.KEYS_FOLDER,
) -> None:
    """Revoke a key for good: only runs that were witnessed before still count."""
    typer.echo(keys_command.revoke(keyid, reason, keys))


@app.command()
@_handled
def init(
    url: Annotated[str, typer.Option(help="Base URL of a running engine.")],
    out: Annotated[Path, typer.Option(help="The spec file to write.")] = Path("new.spec.yaml"),
    api_key_variable: KeyVariableOption = None,
    gpus: GpusOption = None,
    model_files: Annotated[
        Path | None, typer.Option(help="Folder of the model's config.json, from this folder.")
    ] = None,
) -> None:
    """Write a valid spec from what an endpoint, the boards and the model's files tell."""
    written = init_command.init(
        url,
        out,
        _ask,
        api_key_variable=api_key_variable,
        gpus=measure_command.board_names(gpus),
        model_files=model_files,
    )
    typer.echo(written)


@app.command()
@_handled
def doctor(
    spec: Annotated[
        Path | None, typer.Argument(help="A spec whose instruments and engine are tried too.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Base URL of a running engine.")] = None,
    api_key_variable: KeyVariableOption = None,
) -> None:
    """Tell what this machine and an engine can be measured with, and what stands in the way."""
    checks = doctor_command.doctor(url, api_key_variable=api_key_variable, spec=spec)
    for line in table(checks):
        typer.echo(line)
    _tell(counted(checks))
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(EnvironmentProblem.exit_code)


def _ask(question: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        return ""
    _err.print(f"{question} ", end="", markup=False)
    return input()


@app.command()
@_handled
def simulate(
    *,
    accelerator: Annotated[
        str, typer.Option(help="Board, by its name in the accelerator table or the driver's.")
    ] = "NVIDIA H200",
    model: Annotated[str, typer.Option(help="Shape of the model.")] = "llama-3.1-8b",
    count: Annotated[int, typer.Option(help="Boards; they share the work without loss.")] = 1,
    served_name: Annotated[
        str | None, typer.Option(help="The model's name in the API; default that of its shape.")
    ] = None,
    max_batch: Annotated[int, typer.Option(help="Most sequences in a step.")] = 256,
    token_budget: Annotated[int, typer.Option(help="Most tokens computed in a step.")] = 8192,
    kv_tokens: Annotated[
        int | None, typer.Option(help="Tokens of KV; default what the memory holds.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="GiB of a board, where it is not the table's.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Most tokens of prompt and answer together.")
    ] = None,
    port: Annotated[int, typer.Option(help="On the loopback; 0 takes a free one.")] = 8000,
    seed: Annotated[
        int | None, typer.Option(help="Draws the pace of this launch, about 1% off the roofline.")
    ] = None,
    script: Annotated[
        str, typer.Option(help="Dialects and faults by name, such as llama.cpp,drop:20.")
    ] = "",
    log: Annotated[
        Path | None, typer.Option(help="The truth: a line of JSON for each request that ended.")
    ] = None,
) -> None:
    """Serve a simulated engine with an OpenAI-compatible API, until Ctrl-C."""
    simulation = simulate_command.plan(
        simulate_command.Asked(
            accelerator=accelerator,
            model=model,
            count=count,
            served_name=served_name,
            max_batch=max_batch,
            token_budget=token_budget,
            kv_tokens=kv_tokens,
            memory_gib=memory,
            max_model_len=max_model_len,
            seed=seed,
            script=script,
        )
    )
    with (
        simulate_command.serving(simulation, port=port, log=log) as (server, tally),
        contextlib.suppress(KeyboardInterrupt),
    ):
        for line in simulation.lines:
            _tell(line)
        typer.echo(server.url)
        server.wait_until_failed()
    _tell(f"{tally.requests} requests ended; events left up to {tally.late_ns / 1e6:.1f} ms late")


@app.command()
@_handled
def demo() -> None:
    """Measure a small model on this CPU and build the site that shows it."""
    from tokenwatt_site.commands.demo import demonstrate  # noqa: PLC0415  # as for `report`

    with _Display() as events:
        shown = demonstrate(events)
    _print_summary(shown.run)
    _tell("A 135M model on a CPU, demo mode; power was not covered. Look at:")
    typer.echo(shown.report)
    typer.echo(shown.site / "index.html")
    if os.environ.get("DEMO_SERVE") != "0":
        _serve(shown.site)


def _serve(site: Path) -> None:
    handler = functools.partial(_QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        _tell(f"serving http://127.0.0.1:{server.server_port}/ until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        pass


def main() -> None:
    """Run `tokenwatt-site`."""
    app()


def short_main() -> None:
    """Run `tokenwatt`."""
    short_app()
