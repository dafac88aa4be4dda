"""``pyes train``: by Hydra from a command line to checked settings and a run, for one job or for each of a sweep."""

import contextlib
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from pyes.cli import recipes
from pyes.cli.hydra_errors import explained, unreadable, without_package
from pyes.cli.output import describe, running_environments
from pyes.cli.overrides import AS_WRITTEN, GROUPS_WITHOUT_KEYS, directed, of_folder, path_of, written
from pyes.config import TrainConfig, from_mapping
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.system.files import new_folder
from pyes.system.text import tell

_CONF = "pyes.conf"  # the package that contains conf/
_OTHER_TASK = ("task.env_kwargs", "task.hide_observations")  # keys that make another problem of an environment
#: Words of a command line that shows the configuration of one job.
_SHOWING_ONE_JOB = {"--cfg", "-c", "job", "--cfg=job", "-cjob", "--resolve"}
_HYDRA = "1.3"  # version of Hydra's defaults
#: Groups whose options have their own keys, one of which is ``name``.
_NAMED_GROUPS = ("algorithm", "task", "optimizer")


def run(arguments: list[str]) -> None:
    """Run the jobs of the arguments after ``pyes train``.

    Raises
    ------
    PyesError
        The run was rejected or failed; errors of Hydra become a `ConfigError`.
    SystemExit
        Hydra has printed information that was requested, such as its version.
    KeyboardInterrupt
        The user ended the run.
    """
    try:
        os.getcwd()  # where a run is, and which files of settings there are, depends on it
    except FileNotFoundError as error:
        raise ConfigError("the current directory was deleted; change to one that exists (cd)") from error
    gc.disable()  # until the run begins, collections take long and find no garbage
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    _register_resolvers(making="--resolve" not in arguments)  # which shows the configuration, and runs nothing
    failures: list[Exception] = []

    def job(config: Any) -> float | None:
        # Hydra adds a line to the error of a job, so a single run's error is raised later instead.
        try:
            return _run_job(config)
        except Exception as error:
            if _sweeping():
                raise
            failures.append(error)
            return None

    try:
        words = directed(arguments)
        if any(word.startswith("-") for word in words) or not _run_alone(words, job):
            _run_by_hydra(words, job)
        rest = [word for word in words if word not in _SHOWING_ONE_JOB]
        if len(rest) < len(words) and not any(word.startswith("-") for word in rest):  # it is not checked by being run
            _settings(rest)
    except (HydraException, OmegaConfBaseException) as error:
        raise explained(error) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        if hasattr(error, "__notes__"):
            raise
        raise unreadable(error) from error
    except OSError as error:
        place = error.filename or Sweep.folder
        if place is None or hasattr(error, "__notes__"):  # notes are added to a job's own error
            raise
        raise RunDirectoryError(
            f"run_dir: cannot make {place} ({error.strerror}); choose another with run_dir=DIR"
        ) from error
    finally:
        gc.enable()
    if failures:
        raise failures[0]


def settings(arguments: list[str], config_dir: str | None = None) -> TrainConfig:
    """Return the settings that ``pyes train`` would train with.

    Parameters
    ----------
    arguments : list of str
        Without flags.
    config_dir : str, optional
        What ``--config-dir`` would be.

    Raises
    ------
    ConfigError
        They are wrong, or several; or there is no such folder.
    """
    if config_dir is not None and path_of(arguments, "hydra.searchpath"):
        raise ConfigError("hydra.searchpath: Hydra takes one list; name the folder there, too, without --config-dir")
    return _settings([*directed(arguments), *of_folder(config_dir)])


def _settings(words: list[str]) -> TrainConfig:
    """Return the settings that overrides in Hydra's grammar make; ConfigError if they are wrong."""
    import yaml
    from hydra import compose, initialize_config_module
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import open_dict
    from omegaconf.errors import OmegaConfBaseException

    _register_resolvers()
    try:
        with initialize_config_module(_CONF, job_name="train", version_base=_HYDRA):
            config = compose("train", words, return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            with open_dict(config):
                del config["hydra"]
            return _checked(config, Path())
    except (HydraException, OmegaConfBaseException) as error:
        raise explained(error) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise unreadable(error) from error


def _run_alone(overrides: list[str], job: Callable[[Any], float | None]) -> bool:
    """Run a single job; return False, without side effects, if the configuration is a sweep.

    Hydra's own entry composes the configuration twice, first to check for a sweep, which takes half of the time until a
    run begins.
    """
    from hydra import compose, initialize_config_module
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.utils import run_job
    from hydra.errors import HydraException
    from hydra.types import HydraContext, RunMode

    from pyes.run.directory import RunDirectory

    with initialize_config_module(_CONF, job_name="train", version_base=_HYDRA):
        try:
            config = compose("train", overrides, return_hydra_config=True)
        except HydraException:
            if any(each.is_sweep_override() for each in OverridesParser.create().parse_overrides(overrides)):
                return False  # one configuration has one value of each
            raise
        if config.hydra.mode == RunMode.MULTIRUN:
            return False
        config.hydra.mode = RunMode.RUN
        lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if config.resume is None:  # Hydra writes into it before the run begins
            directory = RunDirectory(config.hydra.run.dir)
            directory.check_free()
            lock = directory.locked(hand_over=True)
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks(config))
        try:
            with lock:
                _ = run_job(job, config, "hydra.run.dir", None, context).return_value  # raises the job's error
        except OSError as error:  # of Hydra's own files in it; a full disk is not named
            error.filename = error.filename or config.hydra.run.dir
            raise
    return True


def _run_by_hydra(words: list[str], job: Callable[[Any], float | None]) -> None:
    """Run a sweep, or handle a flag of Hydra."""
    import hydra

    Sweep.folder = None
    try:
        with _command_line(words), _quiet_results():
            hydra.main(config_path=f"pkg://{_CONF}", config_name="train", version_base=_HYDRA)(job)()
        _check_jobs(Sweep.folder)
    finally:
        _show_table(Sweep.folder)


def _register_resolvers(*, making: bool = False) -> None:
    """Register what the configuration and the overrides of a resumed run name as ``${...}``; making folders, or not."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("environment", _environment, replace=True)
    OmegaConf.register_new_resolver("new_folder", _new_folder if making else str, replace=True, use_cache=True)
    OmegaConf.register_new_resolver(AS_WRITTEN, written, replace=True)


def _environment(*, _root_: Any) -> str:
    """Return what a run's directory is named by: its environment, in letters that every file system takes."""
    from omegaconf import OmegaConf

    task = OmegaConf.to_container(_root_.task, resolve=False)
    names = (task.get(key) for key in ("env_id", "factory", "name") if isinstance(task, dict))
    return re.sub(r"[^\w.-]+", "-", next((name for name in names if name and name != "???"), "run"))


def _new_folder(path: str) -> str:
    """Make the folder of a run or a sweep that names none: no other one that begins in this second has the same."""
    try:
        return new_folder(path)
    except OSError:  # OmegaConf would hide it in an error of its own: Hydra meets it where it makes the folder
        return path


class Sweep:
    """Hydra's callback that says where a sweep writes; jobs may run in other processes, this one never does."""

    folder: ClassVar[Path | None] = None

    def __getattr__(self, name: str) -> Any:
        """Do nothing for all other occasions."""
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)

    def on_multirun_start(self, config: Any, **_: Any) -> None:
        """Note the folder of all jobs."""
        Sweep.folder = Path(config.hydra.sweep.dir)


def _check_jobs(folder: Path | None) -> None:
    """Reject a sweep that had no job."""
    if folder is not None and not any(each.is_dir() for each in folder.iterdir()):
        raise ConfigError(
            "-m: the values make no run; glob() has no option of its group (pyes train --help lists them), or range() "
            "no number"
        )


def _show_table(folder: Path | None) -> None:
    """Show where the jobs of a sweep ended, on standard error; not if there was none, or none of them left a run."""
    if folder is None:
        return
    from pyes.reports import tables

    with contextlib.suppress(PyesError, OSError):
        tell(tables.table([folder], []).to_markdown())


def _run_job(config: Any) -> float | None:
    """Train once in the directory that Hydra made; return the objective. May run in a launcher's process."""
    from hydra.core.hydra_config import HydraConfig

    run_dir = Path(HydraConfig.get().runtime.output_dir)
    try:
        checked = _checked(config, run_dir)
        from pyes.training import loop

        gc.enable()
        with running_environments():
            result = loop.train(checked, remark=_recipe(checked))
    except Exception as error:
        refused = type(error) is RunDirectoryError  # so what is there is not this run's
        if not refused:
            _log_failure(run_dir, error)
        if _sweeping():
            tell(f"pyes: job {run_dir.name} failed: {describe(error)}")
            if not refused and str(run_dir / "train.log") not in str(error):
                error.add_note(f"({run_dir / 'train.log'})")
        raise
    try:
        print(result.run_dir, flush=True)
    except OSError as error:
        error.add_note("(the run is whole)")
        raise
    if result.stopped_by == "interrupt":
        raise KeyboardInterrupt  # also ends the rest of a sweep
    return result.objective


def _recipe(config: TrainConfig) -> str:
    """Return what to say of a recipe for the task of a run that was started without one; empty if there is none."""
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices
    if config.resume is not None or any(choices.get(group) for group in GROUPS_WITHOUT_KEYS) or _sweeping():
        return ""
    if any(word.lstrip("+").startswith(_OTHER_TASK) for word in _given()):
        return ""
    environment = getattr(config.task, "env_id", "").rpartition(":")[2]  # without the module that registers it
    return recipes.advice(str(choices.get("task")), environment) or ""


def _checked(config: Any, run_dir: Path) -> TrainConfig:
    """Convert Hydra's configuration of a job to a `TrainConfig`."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config.run_dir = str(run_dir)
    if config.resume is not None:
        config.resume = str(run_dir)
    values: Any
    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise explained(error) from error
    try:
        _check_packages(values)
        _check_algorithm(values)
        _check_environment(values)
        return from_mapping(values)
    except ConfigError as error:
        for group in () if config.resume is not None else _NAMED_GROUPS:  # else they are the run's own
            if name := path_of(_given(), f"{group}.name"):
                error.add_note(f"({group}={name} chooses its keys, too; {group}.name={name} does not)")
        raise


def _check_packages(values: Any) -> None:
    """Reject a sweep that is none, and an option that sets keys of its own group, where those of the run are meant."""
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices
    if choices.get("sweep") and not _sweeping():
        raise ConfigError(f"sweep={choices.get('sweep')}: its file makes no sweep; give it hydra.mode: MULTIRUN")
    for group in GROUPS_WITHOUT_KEYS:
        chosen = choices.get(group)
        if chosen and group in values:
            raise without_package(group, chosen)


def _check_algorithm(values: Any) -> None:
    """Reject an algorithm other than the experiment's own (its ``algorithm.name``), whose keys the experiment sets."""
    from hydra import compose
    from hydra.core.hydra_config import HydraConfig

    choices = HydraConfig.get().runtime.choices
    experiment, chosen, named = choices.get("experiment"), choices.get("algorithm"), values["algorithm"].get("name")
    if experiment is None or chosen == named or path_of(_given(), "algorithm.name"):
        return
    alone = compose("train", [*HydraConfig.get().overrides.hydra, f"algorithm={chosen}"])
    if alone.algorithm.get("name") == named:  # an option of the user's own, whose file has any name
        return
    raise ConfigError(
        f"algorithm: got {chosen}, but experiment={experiment} sets the keys of {named}; leave out algorithm={chosen}, "
        f"or start from task={choices.get('task')} instead of the experiment"
    )


def _check_environment(values: Any) -> None:
    """Reject a task beside an experiment that puts its own environment in the place of the task's."""
    from hydra import compose
    from hydra.core.hydra_config import HydraConfig

    experiment, option = HydraConfig.get().runtime.choices.get("experiment"), path_of(_given(), "task")
    if experiment is None or option is None or path_of(_given(), "task.env_id"):
        return
    alone = compose("train", [*HydraConfig.get().overrides.hydra, f"task={option}"])
    trained, own = values["task"].get("env_id"), alone.task.get("env_id")
    if own and trained != own:
        raise ConfigError(
            f"task: got {option}, but experiment={experiment} sets task.env_id={trained}; for the environment of "
            f"task={option}, add task.env_id={own}, or start from task={option} instead of the experiment"
        )


def _given() -> list[str]:
    """Return the overrides of a job from the command line or the sweep."""
    from hydra.core.hydra_config import HydraConfig

    return list(HydraConfig.get().overrides.task)


def _sweeping() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _log_failure(run_dir: Path, error: Exception) -> None:
    """Write the error to the run's own log."""
    from omegaconf.errors import OmegaConfBaseException

    from pyes.run.directory import RunDirectory

    text = f"{error}\n"
    cause = error.__cause__ if isinstance(error, PyesError) else error
    if cause is not None and not isinstance(cause, (PyesError, OmegaConfBaseException)):  # perhaps of the user's code
        text += "".join(traceback.format_exception(cause))
    RunDirectory(run_dir).add_to_log(text)


@contextlib.contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Pass Hydra its arguments, and make it raise errors instead of printing them."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["pyes train", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


@contextlib.contextmanager
def _quiet_results() -> Iterator[None]:
    """Keep Hydra from writing a line of its own when the result of a failed job is asked for, which raises."""
    from hydra.core.utils import JobReturn, JobStatus

    def result(job: Any) -> Any:
        if job.status == JobStatus.COMPLETED:
            return job._return_value
        raise job._return_value

    kept: Any = JobReturn.return_value
    JobReturn.return_value = kept.getter(result)  # type: ignore[method-assign]
    try:
        yield
    finally:
        JobReturn.return_value = kept  # type: ignore[method-assign]
