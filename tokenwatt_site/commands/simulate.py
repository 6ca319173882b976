"""A simulated engine on the loopback: what `tokenwatt-site simulate` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tokenwatt_site.errors import EnvironmentProblem, Problem, UsageError
from tokenwatt_site.simulate import models, roofline
from tokenwatt_site.simulate.blocks import BLOCK_TOKENS
from tokenwatt_site.simulate.engine import Engine, Limits
from tokenwatt_site.simulate.roofline import Roofline
from tokenwatt_site.simulate.script import Script, named
from tokenwatt_site.simulate.server import SimulatedServer
from tokenwatt_site.simulate.truth import Keep, Served, TruthFile


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command; None where the default follows from the others."""

    accelerator: str
    model: str
    count: int
    served_name: str | None
    max_batch: int
    token_budget: int
    kv_tokens: int | None
    memory_gib: int | None
    max_model_len: int | None
    seed: int | None
    script: str


@dataclass(frozen=True, slots=True)
class Simulation:
    """An engine that can be served."""

    roofline: Roofline
    limits: Limits
    script: Script

    @property
    def lines(self) -> tuple[str, ...]:
        """What is simulated, in words."""
        boards, model, limits = self.roofline.boards, self.roofline.model, self.limits
        what = f"{model.name} in bf16 on {boards.count}x {boards.name}"
        sizes = f"batch {limits.max_batch}, {limits.token_budget} tokens a step"
        room = f"KV of {limits.kv_tokens} tokens, sequences up to {limits.max_model_len}"
        alone_ms = self.roofline.step_ns(1, 1, 1) / 1e6
        return (
            f"simulates {what}, as {self.script.model}; nothing is computed",
            f"{sizes}, {room}; one answer alone gets a token every {alone_ms:.3g} ms",
            "a run measured against it is marked simulated in its signed file, and never ranked",
        )


@dataclass(slots=True)
class Tally:
    """What was served: how many requests ended, and the most that an event was late."""

    requests: int = 0
    late_ns: int = 0

    def add(self, served: Served) -> None:
        self.requests += 1
        self.late_ns = max(self.late_ns, served.late_ns)


def plan(asked: Asked) -> Simulation:
    """Turn options into an engine.

    Raises:
        UsageError: a name that is not known, with those that are; a model that does not fit; limits
            that do not go together.
    """
    model = models.named(asked.model)
    boards = roofline.boards(asked.accelerator, asked.count)
    if asked.memory_gib is not None:
        if asked.kv_tokens is not None:
            raise UsageError("give --kv-tokens or --memory, not both")
        boards = replace(boards, memory_bytes=asked.memory_gib << 30)
    prices = Roofline(model, boards, seed=asked.seed)
    kv_tokens = asked.kv_tokens
    if kv_tokens is None:
        kv_tokens = prices.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS
        if kv_tokens < BLOCK_TOKENS:
            raise UsageError(
                Problem(
                    "leaves no room for KV beside the weights",
                    field="--memory",
                    found=f"{boards.count} x {boards.memory_bytes / 2**30:g} GiB",
                    expected=f"more than {prices.weights_gib:.1f} GiB of weights",
                    remedy="Take more boards (--count) or a smaller --model.",
                )
            )
    elif kv_tokens < BLOCK_TOKENS:
        raise UsageError(
            Problem(
                "is too small",
                field="--kv-tokens",
                found=str(kv_tokens),
                expected=f"{BLOCK_TOKENS} or more, which is one block",
            )
        )
    longest = model.shape.max_context or kv_tokens
    limit = asked.max_model_len
    if limit is None:
        limit = min(longest, kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS)
    elif limit > longest:
        raise UsageError(
            Problem(
                "is longer than the model takes",
                field="--max-model-len",
                found=str(limit),
                expected=f"at most {longest}",
            )
        )
    return Simulation(
        roofline=prices,
        limits=Limits(asked.max_batch, asked.token_budget, kv_tokens, limit),
        script=named(asked.script, Script(model=asked.served_name or model.name)),
    )


@contextmanager
def serving(
    simulation: Simulation, *, port: int, log: Path | None
) -> Iterator[tuple[SimulatedServer, Tally]]:
    """Serve in a thread until left; `log` gets a line for each request that ended.

    Raises:
        UsageError: there is no such port, or the log is there already.
        EnvironmentProblem: the port is taken, or the log cannot be written.
    """
    if not 0 <= port < 1 << 16:
        raise UsageError(
            Problem("is no port", field="--port", found=str(port), expected="0 to 65535")
        )
    tally = Tally()
    with ExitStack() as stack:
        try:
            file = None if log is None else stack.enter_context(TruthFile(log))
        except FileExistsError as error:
            raise UsageError(
                Problem("is there already", file=str(log), remedy="Name another file with --log.")
            ) from error
        except OSError as error:
            raise _cannot("be written", str(log), error) from error
        engine = Engine(simulation.roofline, simulation.limits)
        server = SimulatedServer(simulation.script, engine, port=port, keep=_both(tally, file))
        try:
            stack.enter_context(server)
        except OSError as error:
            if log is not None:
                log.unlink(missing_ok=True)  # it is ours, and empty
            raise _cannot("be listened on", f"port {port}", error) from error
        try:
            yield server, tally
        except OSError as error:
            if error is not server.failure:
                raise  # of who uses the server
            raise _cannot("be written", str(log), error) from error


def _cannot(what: str, file: str, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(Problem(f"cannot {what} ({error.strerror})", file=file))


def _both(tally: Tally, file: TruthFile | None) -> Keep:
    def keep(served: Served) -> None:
        tally.add(served)
        if file is not None:
            file.keep(served)

    return keep
