"""A policy as a folder for a model hub: the files of `Policy.save`, the settings of its run, and a model card.

Owns the text of the card. Invariant: a result in the card is of the policy in the folder.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pyes import config as configuration
from pyes.config import TrainConfig
from pyes.errors import ConfigError
from pyes.networks import Policy
from pyes.networks.policy import WEIGHTS_FILE
from pyes.reports.runs import recording_if_readable
from pyes.run.directory import RunDirectory
from pyes.run.history import task_began
from pyes.run.journal import Evaluation, Recording
from pyes.run.metrics import number, read_rows
from pyes.system.files import write_file
from pyes.system.text import counted, rounded, spread

_SETTINGS = "config.json"
_OURS = b"library_name: pyes"  # in the card of every exported policy
#: Keys of where a run was made; no result depends on them.
PLACES = ("run_dir", "resume", "force", "cluster", "logger")


def write(policy: Policy, run: Path, folder: Path, chosen: bool) -> None:
    """Write policy.safetensors, policy.json, README.md and, for a run directory, config.json.

    Parameters
    ----------
    policy : Policy
    run : Path
        Where it is from.
    folder : Path
    chosen : bool
        Whether it was chosen by its evaluation, which then says too much.

    Raises
    ------
    ConfigError
        The folder holds a run, or files of these names that are of something else, or cannot be written.
    RunDirectoryError
        The run's settings are damaged.
    """
    if RunDirectory(folder).journal.exists():
        raise ConfigError(f"{folder} holds a run, whose policy would be replaced; export to another folder")
    readme, settings, weights = folder / "README.md", folder / _SETTINGS, folder / WEIGHTS_FILE
    if not (readme.exists() and _OURS in readme.read_bytes()):
        for file in (readme, settings, weights, weights.with_suffix(".json")):
            if file.exists():
                raise ConfigError(
                    f"{file} is not of an exported policy, and would be replaced; export to another folder"
                )
    source = RunDirectory(run)
    config = source.read_config() if source.config.exists() else None
    recording = recording_if_readable(source.journal)
    evaluation = _evaluation(policy, recording, source.metrics, config)
    known = source.journal.exists() or source.metrics.exists()
    card = _card(policy, config, evaluation, known=known, chosen=chosen, changed=bool(recording.branches)).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder} ({error.strerror}); choose another place") from error
    write_file(readme, card)  # which marks the folder as ours, should an export end half-way
    policy.save(folder)
    if config is not None:
        write_file(settings, shareable(config).encode())
    else:
        settings.unlink(missing_ok=True)  # those of another policy that was exported there before


def shareable(config: TrainConfig) -> str:
    """Return the settings that repeat a run anywhere, as JSON."""
    kept = {key: value for key, value in configuration.to_mapping(config).items() if key not in PLACES}
    return f"{json.dumps(kept, indent=2)}\n"


def _evaluation(
    policy: Policy, recording: Recording, metrics: Path, config: TrainConfig | None
) -> tuple[float, float, str] | None:
    """Return the mean, the standard deviation and the episodes of the run's evaluation of this policy, as a text.

    None if there was none, or it was of another task than that of the settings; NaN if all of its episodes failed. The
    last evaluation of a part of the run may be in the metrics alone; of how many episodes, only the last part is known.
    """
    if 0 < policy.generation <= task_began(recording):
        return None
    for index, entry in enumerate(recording.entries):
        if entry.generation == policy.generation and isinstance(record := recording[index], Evaluation):
            over = f" over {counted(int(np.isfinite(record.returns).sum()), 'episode')}"
            return (*record.summary, over)
    rows = read_rows(metrics) if metrics.exists() else []
    row = next((row for row in rows if number(row.get("generation")) + 1 == policy.generation), {})
    mean, deviation = (number(row.get(f"eval_return_{each}")) for each in ("mean", "std"))
    if config is None or -math.inf in (mean, deviation):
        return None
    failed = number(row.get("eval_failed_episodes") or "0")
    known = row is rows[-1] and math.isfinite(failed)
    over = f" over {counted(config.evaluation.episodes - int(failed), 'episode')}" if known else ""
    return mean, deviation, over


def _card(
    policy: Policy,
    config: TrainConfig | None,
    evaluation: tuple[float, float, str] | None,
    *,
    known: bool,
    chosen: bool,
    changed: bool,
) -> str:
    description = policy.description()
    task = policy.title or "unknown task"
    network = str(policy.network.get("name") or "network")
    front: dict[str, Any] = {
        "library_name": "pyes",
        "pipeline_tag": "reinforcement-learning",
        "tags": [task, "reinforcement-learning", "evolution-strategies", "pyes", network],
    }
    if evaluation is not None and math.isfinite(evaluation[0]) and not chosen:
        front["model-index"] = _model_index(task, network, evaluation)
    made = (_CHANGED if changed else _MADE).format(settings=_SETTINGS)
    if config is None:
        made = "The settings of the training are not here.\n"
    function = policy.task.get("name") == "function"
    return _CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        task=task,
        network=network,
        result=_result(evaluation, known=known, chosen=chosen, other_seed=policy.seed + 1),
        film="" if function else _FILM,
        use=_VALUE if function else _EPISODE,
        handling=f"\n{told} `pyes.make_env` does it.\n" if (told := policy.handling) else "",
        made=made,
        seed=policy.seed,
        generation=policy.generation,
        version=description["pyes"],
        digest=description["theta_hash"],
    )


def _model_index(task: str, network: str, evaluation: tuple[float, float, str]) -> list[dict[str, Any]]:
    """Return a result in the form that a model hub reads."""
    mean, deviation, _ = evaluation
    value = spread(mean, deviation).replace("±", "+/-")
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": task, "type": task},
        "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": value, "verified": False}],
    }
    return [{"name": f"{network} by evolution strategies", "results": [result]}]


def _result(evaluation: tuple[float, float, str] | None, *, known: bool, chosen: bool, other_seed: int) -> str:
    """Return what is known of an evaluation, in a sentence."""
    if evaluation is None:
        why = "It has not been evaluated in its run" if known else "What it came to in its run is not known here"
        return f"{why}; `pyes evaluate` says what it comes to."
    mean, deviation, over = evaluation
    if not math.isfinite(mean):
        return "All episodes of its evaluation failed."
    seeds = "on seeds that training does not use"
    if chosen:
        seeds = (
            f"by which it was chosen, so some of it is luck; `pyes evaluate . --seed {other_seed}` has other episodes"
        )
    return f"Mean return **{rounded(mean, deviation)}** +/- {rounded(deviation, mean)}{over}, {seeds}."


_CHANGED = """\
`{settings}` has the settings at the end. Some were changed on the way, so they do not repeat the training.
"""

_MADE = """\
`{settings}` has all settings of the training. This repeats it:

```python
import json
import pyes

if __name__ == "__main__":
    pyes.train(json.load(open("{settings}")))
```
"""

_FILM = "pyes video . -o video.mp4\n"

_EPISODE = """\
policy, env = pyes.load("."), pyes.make_env(".")
observation, _ = env.reset(seed=0)
policy.reset()
action = policy(observation)
"""

_VALUE = """\
theta = pyes.load(".").theta
"""

_CARD = """\
---
{front}---

# {task}: {network}, trained by evolution strategies

{result}

## Use

```sh
pip install pyes-rl
pyes evaluate .
{film}```

In this folder; `.` may be any path to it. In Python:

```python
import pyes

{use}```
{handling}
## Training

{made}
| | |
|---|---|
| seed | {seed} |
| generation | {generation} |
| pyes | {version} |
| theta_hash | {digest} |
"""
