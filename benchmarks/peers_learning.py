"""Trainings of pyes and of its peers, evaluated by the same rules: seconds and timesteps to a return.

Each training has all cores of the machine, one after the other, and lasts as long as all others of its task, whatever
budget its settings come with. The clock starts with the program: interpreter, imports, simulators and workers count.
Every 30 seconds of it, and at the end, the deterministic policy (mean action, normalisation frozen) plays 20
episodes in Gymnasium's own environment, of the same seeds for all. That is outside of the clock: it stops meanwhile for
the peers; pyes trains without evaluations, and its policies are rebuilt from the journal afterwards. A method's own
network, normalisation and shaping of rewards belong to its settings: those of pyes are its recipes, of the peers in
``peers.yaml``. Training seeds begin at 100, since the recipes of pyes were chosen on smaller ones.
"""

import contextlib
import logging
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import peers_records as records
from peers_curves import TASKS, Point, read

# The peers, and pyes, are imported where they are used: imports are on the clock, and no method pays for another's.

EVERY, EPISODES, EVALUATION_SEED, FIRST_SEED = 30.0, 20, 1_000_000, 100
_WHOLE = 0.95  # share of the time after which a training is over: pyes begins no generation that would end later

Act = Callable[[Any], Any]


class Over(Exception):
    """The time is up."""


class Curve:
    """The evaluations of a training that began at a reading of the monotonic clock."""

    def __init__(self, env_id: str, limit: float, begun: float) -> None:
        self._env_id, self._limit, self._begun = env_id, limit, begun
        self._due = EVERY
        self.points: list[Point] = []

    def updated(self, timesteps: int, act: Act) -> None:
        """Evaluate if it is time, with the clock stopped; raise `Over` after the last evaluation."""
        now = time.monotonic()
        seconds = now - self._begun
        last = seconds >= self._limit
        self.offer(timesteps, seconds, lambda: act, last)
        self._begun += time.monotonic() - now
        if last:
            raise Over

    def offer(self, timesteps: int, seconds: float, policy: Callable[[], Act], last: bool) -> None:
        """Evaluate a policy if it is the first one after a multiple of 30 seconds, or the last of all."""
        if seconds >= self._due or last:
            self._due = (seconds // EVERY + 1) * EVERY
            self.points.append(Point(timesteps, round(seconds, 2), *evaluated(self._env_id, policy())))


def evaluated(env_id: str, act: Act) -> tuple[float, float]:
    """Return the mean and the standard deviation of the returns of a policy."""
    import gymnasium

    returns = []
    with gymnasium.make(env_id) as env:
        for episode in range(EPISODES):
            observation, _ = env.reset(seed=EVALUATION_SEED + episode)
            total, over = 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(act(observation))
                total += float(reward)
                over = terminated or truncated
            returns.append(total)
    return statistics.fmean(returns), statistics.pstdev(returns)


# The methods. Each trains until `Over`, or for the time by itself.


def pyes(name: str, seed: int, limit: float, curve: Curve) -> None:
    """Train with the program; evaluate centers of the journal afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        startup = trained(name, seed, limit, run)
        offer_centers(run, startup, curve)


def trained(name: str, seed: int, limit: float, run: Path) -> float:
    """Run `pyes train`; return the seconds until its first generation began."""
    budgets = ("generations=null", "timesteps=null", "target_return=null", f"time_limit={limit}", "evaluation.every=0")
    overrides = (f"experiment={TASKS[name].recipe}", *budgets, f"seed={seed}", f"run_dir={run}")
    begun, metrics = time.monotonic(), run / "metrics.csv"
    command = [sys.executable, "-m", "pyes", "train", *overrides]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        # The rows count from the first generation on: when the first row is seen tells how long the start took.
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 1) and process.poll() is None:
            time.sleep(0.005)
        first = time.monotonic() - begun
        errors = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(f"pyes train {' '.join(overrides)}: {errors.strip()}")

    from pyes.run.metrics import read_rows

    return first - float(read_rows(metrics)[0]["seconds"])


def offer_centers(run: Path, startup: float, curve: Curve) -> None:
    """Offer the center of every generation of a run."""
    from pyes.reports import replay
    from pyes.run.metrics import read_rows

    rows = read_rows(run / "metrics.csv")
    with replay.open(run) as history:
        for row in rows:
            updates = int(row["generation"]) + 1
            seconds = startup + float(row["seconds"])
            curve.offer(int(row["timesteps"]), seconds, lambda n=updates: history.policy(n), row is rows[-1])


def ppo(name: str, seed: int, limit: float, curve: Curve) -> None:
    """Train with Stable-Baselines3's PPO, its environments in its own process, as the zoo does."""
    from stable_baselines3 import PPO
    from torch import nn

    settings = published("ppo", name)
    if network := settings.get("policy_kwargs"):
        network["activation_fn"] = getattr(nn, network["activation_fn"])
    normalize, n_envs = settings.pop("normalize"), settings.pop("n_envs")
    env = vector_env(TASKS[name].env_id, seed, n_envs, {"gamma": settings["gamma"]} if normalize else None)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    model.learn(sys.maxsize, callback=watcher(curve))


def ars(name: str, seed: int, limit: float, curve: Curve) -> None:
    """Train with SB3-contrib's ARS, a process for each core."""
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval

    settings, env_id, normalize = published("ars", name), TASKS[name].env_id, {"norm_reward": False}
    model = ARS(settings.pop("policy"), vector_env(env_id, seed, 1, normalize), seed=seed, device="cpu", **settings)
    makers = [lambda i=i: vector_env(env_id, seed + i, 1, normalize) for i in range(os.cpu_count() or 1)]
    workers = AsyncEval(makers, model.policy)
    try:
        model.learn(sys.maxsize, callback=watcher(curve), async_eval=workers)
    finally:
        workers.close()


def published(method: str, task: str) -> dict[str, Any]:
    """Return the settings of a peer."""
    import yaml

    settings: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("peers.yaml").read_text(encoding="utf-8"))
    return settings[method][task]


def vector_env(env_id: str, seed: int, n_envs: int, normalize: dict[str, Any] | None) -> Any:
    """Make an environment of Stable-Baselines3."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = make_vec_env(env_id, n_envs=n_envs, seed=seed)
    return env if normalize is None else VecNormalize(env, **normalize)


def watcher(curve: Curve) -> Any:
    """Return a callback that offers the policy between its updates."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watcher(BaseCallback):
        def _on_rollout_start(self) -> None:
            normalizer = self.model.get_vec_normalize_env()

            def act(observation: Any) -> Any:
                seen = observation if normalizer is None else normalizer.normalize_obs(observation)
                return self.model.predict(seen, deterministic=True)[0]

            curve.updated(self.model.num_timesteps, act)

        def _on_step(self) -> bool:
            return True

    return Watcher()


def pgpe(name: str, seed: int, limit: float, curve: Curve) -> None:
    """Train with EvoTorch's PGPE and ClipUp, an actor of Ray for each core."""
    import ray
    import torch
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    settings = published("pgpe", name)
    torch.manual_seed(seed)  # GymNE takes no seed; its episodes have seeds of chance
    ray.init(_node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    problem = GymNE(
        TASKS[name].env_id,
        f"Linear(obs_length, act_length, bias={settings['bias']})",
        observation_normalization=settings["normalize"],
        decrease_rewards_by=settings["decrease_rewards_by"],
        num_actors="max",
    )
    searcher = PGPE(
        problem,
        popsize=settings["popsize"],
        popsize_max=settings["popsize_max"],
        num_interactions=settings["num_interactions"],
        radius_init=15 * settings["max_speed"],
        center_learning_rate=0.75 * settings["max_speed"],
        stdev_learning_rate=0.1,
        stdev_max_change=0.2,
        optimizer="clipup",
        optimizer_config={"max_speed": settings["max_speed"], "momentum": 0.9},
    )

    def act(observation: Any) -> Any:
        with torch.no_grad():
            return policy(torch.as_tensor(observation, dtype=torch.float32)).numpy()

    while True:
        searcher.step()
        policy = problem.to_policy(searcher.status["center"])
        curve.updated(int(problem.status["total_interaction_count"]), act)


#: The functions that train.
METHODS: dict[str, Callable[[str, int, float, Curve], None]] = {"pyes": pyes, "ppo": ppo, "ars": ars, "pgpe": pgpe}


def learn(
    tasks: Iterable[str], methods: Sequence[str], seeds: int, minutes: float | None, folder: Path
) -> Iterator[str]:
    """Train what is missing in ``curves.csv``, one after the other; without minutes, for the task's; yield failures."""
    for task in tasks:
        limit = 60 * (minutes or TASKS[task].minutes)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for method in methods:
                if not there(folder / "curves.csv", task, method, seed, limit):
                    yield f"{task}, {method}, seed {seed}"


def there(file: Path, task: str, method: str, seed: int, limit: float) -> bool:
    """Train in a process of its own, unless that was done; return whether its evaluations are there."""
    if curve := read(file).get(task, {}).get(method, {}).get(seed):
        if curve[-1].seconds < (least := _WHOLE * limit):
            lasted = f"a training of {task} of {curve[-1].seconds:.0f} seconds"
            sys.exit(f"{file}: got {lasted}, expected at least {least:.0f}; choose another --folder")
        return True
    arguments = task, method, seed, limit, time.monotonic(), file
    process = multiprocessing.get_context("spawn").Process(target=train, args=arguments)
    process.start()
    process.join()
    return process.exitcode == 0


def train(task: str, method: str, seed: int, limit: float, begun: float, file: Path) -> None:
    """Train, and write the evaluations at the end: what is cut short is not there."""
    # One thread of torch a process: two wait for each other on networks this small, very long on a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.chdir(tempfile.gettempdir())  # MuJoCo writes its warnings to a file there
    curve = Curve(TASKS[task].env_id, limit, begun)
    with contextlib.suppress(Over):
        METHODS[method](task, seed, limit, curve)
    records.append(
        file, ("task", "method", "seed", *Point._fields), [(task, method, seed, *each) for each in curve.points]
    )
    last = curve.points[-1]
    print(f"{task}, {method}, seed {seed}: {last.mean:.1f} after {last.seconds:.0f} s", flush=True)
