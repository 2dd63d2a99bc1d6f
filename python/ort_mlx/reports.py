"""What happened to a model: nodes taken, partitions, each node that stayed with its reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .timings import Timings

if TYPE_CHECKING:
    from ._native import ClosureCache
    from .plan import Plan


@dataclass(frozen=True)
class LeftNode:
    """A node left to another provider."""

    name: str
    op_type: str
    domain: str
    reasons: tuple[str, ...]
    nested: bool = False  # inside a body of a node that was left too

    def __str__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        return f"{domain}{self.op_type} '{self.name}': {'; '.join(self.reasons)}"


@dataclass
class Report:
    """The placement of one session, as data; `str(report)` is readable text."""

    device: str
    closures: ClosureCache = field(repr=False)
    taken: int = 0
    partitions: int = 0
    left: list[LeftNode] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list, repr=False)
    # Seconds of cold work so far: snapshot, claim, partition, plan, constants, trace.
    timings: Timings = field(default_factory=Timings, repr=False)

    @property
    def nodes(self) -> int:
        """All nodes that were offered."""
        return self.taken + len(self.left)

    def line(self) -> str:
        """One line for a log."""
        text = f"ort_mlx: {self.taken}/{self.nodes} nodes on MLX ({self.device}) in "
        text += f"{self.partitions} partition{'' if self.partitions == 1 else 's'}"
        if not self.left:
            return text
        counted = Counter((n.op_type, n.reasons[0]) for n in self.left)
        shown = [f"{op}x{k} ({why})" for (op, why), k in counted.most_common(4)]
        more = "" if len(counted) <= 4 else f" and {len(counted) - 4} more"
        return f"{text}; left to other providers: {', '.join(shown)}{more}"

    def refusal(self) -> str:
        """The error of a strict session."""
        shown = "\n".join(f"  {node}" for node in self.left[:20])
        more = "" if len(self.left) <= 20 else f"\n  and {len(self.left) - 20} more"
        return (
            f"ort_mlx: strict=True, but {len(self.left)} of {self.nodes} nodes would not run on MLX"
            f":\n{shown}{more}\nUse strict=False to run them on ONNX Runtime's CPU provider"
        )

    @property
    def counts(self) -> dict[str, int]:
        """Closure hits, misses, traces, evictions, failures, and Runs by route so far."""
        return dict(self.closures.counts())

    @property
    def misses(self) -> list[str]:
        """Why the last closures were traced, for each partition the newest last."""
        return [text for plan in self.plans for text in plan.misses]

    @property
    def failures(self) -> list[str]:
        """The last failures of closures; each Run went on step by step."""
        return [text for plan in self.plans for text in plan.failures]

    @property
    def eager_reasons(self) -> list[str]:
        """Why partitions run step by step, where they do."""
        return [text for plan in self.plans for text in plan.reasons]

    @property
    def unpadded(self) -> list[str]:
        """Why dimensions of the option `shape_buckets` are not padded, by partition."""
        return [text for plan in self.plans for text in plan.unpadded]

    def __str__(self) -> str:
        lines = [self.line(), *(f"  {node}" for node in self.left)]
        counts = self.counts
        if any(counts.values()):
            shown = ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in counts.items())
            lines.append(f"closures: {len(self.closures)} held; {shown}")
        for title, texts in (
            ("traced", self.misses),
            ("failed", self.failures),
            ("step by step", self.eager_reasons),
            ("not padded", self.unpadded),
        ):
            lines.extend(f"  {title}: {text}" for text in texts)
        return "\n".join(lines)
