"""`streamlogctl profile`, and which cluster commands connect to: the file, precedence, what a broken file says."""

from __future__ import annotations

import json
import os
import stat
import threading
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from streamlog.cli.cluster import profile as commands
from streamlog.cli.common import profiles
from streamlog.cli.common.profiles import Profile, Profiles, change_profiles, read_profiles
from streamlog.cli.main import main
from tests.cli.served import USAGE, ServedCluster, refused

NO_NODE = "127.0.0.1:1"
SECRET = "hunter2"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of profiles; not there yet, nor its folder."""
    path = tmp_path / "config" / "profiles.toml"
    monkeypatch.setenv("STREAMLOG_PROFILES", str(path))
    for name in ("STREAMLOG_BOOTSTRAP_SERVERS", "STREAMLOG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return path


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def done(*arguments: str, **environment: str) -> Result:
    found = run(*arguments, **environment)
    assert found.exit_code == 0, found.output
    return found


def create(name: str, servers: str, *options: str) -> None:
    done("profile", "create", name, "--bootstrap-server", servers, *options)


def test_created_listed_used_shown_deleted(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = done("profile", "list")
    assert found.stdout == "NAME\tCURRENT\tBOOTSTRAP_SERVERS\tCOMMAND_CONFIG\n"
    assert "There are no profiles; create one with: " in found.stderr
    assert not file.parent.exists(), "reading writes nothing"
    settings = tmp_path / "prod.properties"
    settings.write_text(f"sasl.password={SECRET}\n")
    monkeypatch.chdir(tmp_path)
    create("prod", "node1:9092,node2:9092", "--command-config", settings.name)
    create("local", "127.0.0.1:9092")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert SECRET not in file.read_text()
    assert done("profile", "list").stdout.splitlines()[1:] == [
        f"prod\tno\tnode1:9092,node2:9092\t{settings}",
        "local\tno\t127.0.0.1:9092\tnone",
    ]
    assert "There is no current profile: choose one" in refused(run("profile", "show"))
    assert done("profile", "use", "prod").output == "The current profile is prod.\n"
    shown = {
        "name": "prod",
        "current": True,
        "bootstrap_servers": ["node1:9092", "node2:9092"],
        "command_config": str(settings),
    }
    assert json.loads(done("profile", "show", "--output", "json").stdout) == shown
    assert json.loads(done("profile", "list", "--output", "json").stdout)[0] == shown
    assert "bootstrap_servers\t127.0.0.1:9092\n" in done("profile", "show", "local").stdout
    assert "name\tlocal\n" in done("profile", "show", STREAMLOG_PROFILE="local").stdout
    assert "It was the current one" in done("profile", "delete", "prod").stderr
    assert "current" not in tomllib.loads(file.read_text())
    assert "It was the current one" not in done("profile", "delete", "local").stderr
    assert not read_profiles().by_name
    assert settings.exists()


def test_what_takes_precedence_is_noted(file: Path) -> None:
    create("prod", NO_NODE)
    create("test", NO_NODE)
    servers, other = {"STREAMLOG_BOOTSTRAP_SERVERS": "a:1"}, {"STREAMLOG_PROFILE": "test"}
    assert "Note: STREAMLOG_BOOTSTRAP_SERVERS=a:1 takes precedence" in done("profile", "use", "prod", **servers).stderr
    assert "Note: STREAMLOG_PROFILE=test takes precedence" in done("profile", "use", "prod", **other).stderr
    assert done("profile", "use", "test", **other).stderr == ""
    assert "STREAMLOG_BOOTSTRAP_SERVERS=a:1" in done("profile", "show", **servers).stderr


def test_refusals(file: Path, tmp_path: Path) -> None:
    for verb in ("use", "show", "delete"):
        assert "There is no profile 'prod': there are none; create it with" in refused(run("profile", verb, "prod"))
    create("prod", NO_NODE)
    before = file.read_bytes()
    assert "Profile prod exists: choose another name, or delete it first" in refused(
        run("profile", "create", "prod", "--bootstrap-server", "b:1")
    )
    assert "There is no profile 'prd': list the profiles with" in refused(run("profile", "use", "prd"))
    for name in ("", "-x", "a b", "a/b", "ä", "a\n", "a" * 65):
        found = run("profile", "create", "--bootstrap-server", NO_NODE, "--", name)
        assert found.exit_code == USAGE
        assert "must be at most 64 letters" in found.stderr
    for servers in ("", ",", "nohost", "a:0"):
        assert run("profile", "create", "x", "--bootstrap-server", servers).exit_code == USAGE
    assert run("profile", "create", "x").exit_code == USAGE
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = run("profile", "create", "x", "--bootstrap-server", NO_NODE, "--command-config", str(pipe))
    assert found.exit_code == USAGE
    assert "is not a regular file" in found.stderr
    assert file.read_bytes() == before


def cluster_of(*arguments: str, **environment: str) -> str:
    """The nodes that `topic list` tries to reach."""
    said = refused(run("topic", "list", *arguments, **environment))
    assert said.startswith("Error: no node answers at ")
    return said.removeprefix("Error: no node answers at ").partition(": ")[0].partition(" (")[0]


def test_precedence(file: Path) -> None:
    for number, name in enumerate(("current", "named", "env"), start=1):
        create(name, f"127.0.0.1:{number}")
    done("profile", "use", "current")
    servers, profile = {"STREAMLOG_BOOTSTRAP_SERVERS": "127.0.0.1:4"}, {"STREAMLOG_PROFILE": "env"}
    everything = {**servers, **profile}
    option, of_profile = ("--bootstrap-server", "127.0.0.1:5"), ("--profile", "named")
    assert cluster_of(*option, *of_profile, **everything) == "127.0.0.1:5"
    assert cluster_of(*of_profile, **everything) == "127.0.0.1:2"
    assert cluster_of(**everything) == "127.0.0.1:4"
    assert cluster_of(**profile) == "127.0.0.1:3"
    assert cluster_of() == "127.0.0.1:1"
    assert cluster_of(STREAMLOG_BOOTSTRAP_SERVERS="", STREAMLOG_PROFILE="") == "127.0.0.1:1"
    said = refused(run("--profile", "named", "topic", "list"))
    assert "no node answers at 127.0.0.1:2" in said, "before the command, too"


def test_a_served_cluster_by_its_name(served: ServedCluster, file: Path) -> None:
    create("served", served.address)
    done("topic", "create", "orders", "--profile", "served")
    done("profile", "use", "served")
    assert done("topic", "list").stdout == "orders\n"
    words = {"_STREAMLOGCTL_COMPLETE": "bash_complete", "COMP_WORDS": "streamlogctl topic delete o", "COMP_CWORD": "3"}
    assert CliRunner().invoke(main, [], env=words, prog_name="streamlogctl").stdout.split() == ["plain,orders"]


def test_settings_of_a_profile(served: ServedCluster, file: Path, tmp_path: Path) -> None:
    """With the profile's nodes, or where it is named; `--command-config` replaces them."""
    of_profile, other = tmp_path / "profile.properties", tmp_path / "other.properties"
    of_profile.write_text("security.protocol=SSL\n")
    other.write_text("client.id=x\n")
    create("secure", served.address, "--command-config", str(of_profile))
    done("profile", "use", "secure")
    needs = "security.protocol=SSL: needs ssl.truststore.location"
    assert needs in run("topic", "list").stderr
    assert needs in run("topic", "list", "--bootstrap-server", served.address, "--profile", "secure").stderr
    done("topic", "list", "--command-config", str(other))
    done("topic", "list", "--bootstrap-server", served.address)  # its credentials are for its own nodes
    done("topic", "list", STREAMLOG_BOOTSTRAP_SERVERS=served.address)
    done("topic", "list", STREAMLOG_BOOTSTRAP_SERVERS=served.address, STREAMLOG_PROFILE="secure")
    of_profile.write_text("client.id=${env:NO_SUCH_VARIABLE}\n")
    assert "profile secure: " in refused(run("topic", "list"))
    of_profile.unlink()
    said = refused(run("topic", "list"))
    assert f"profile secure: its command_config {of_profile} cannot be read: No such file" in said


def test_an_unknown_profile_is_named_with_where_it_is_from(file: Path) -> None:
    create("prod", NO_NODE)
    for found, where in (
        (run("topic", "list", "--profile", "prd"), "--profile"),
        (run("topic", "list", STREAMLOG_PROFILE="prd"), "STREAMLOG_PROFILE"),
    ):
        assert found.exit_code == USAGE
        assert (
            f"{where}: there is no profile 'prd': list the profiles with 'streamlogctl profile list'." in found.stderr
        )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("current = \n", "(at line 1, column 11)"),
        ('\n[profiles.x\nbootstrap_servers = "a:1"\n', "(at line 2, column 12)"),
        ("x = " + "[" * 100_000, "not TOML: "),
        (b"current = '\xff'\n", "byte 11 is not UTF-8"),
        ("current = 'x'\n", "current is 'x', which is not the name of a profile"),
        ("current = 1\n", "current is 1, which"),
        ("profiles = 1\n", "profiles must be tables"),
        ("profile.x.bootstrap_servers = 'a:1'\n", "profile: unknown key; there are current and profiles"),
        ("[profiles]\nx = 1\n", "profiles.x must be a table"),
        ("[profiles.'a b']\n", "the profile's name 'a b': must be at most 64 letters"),
        ("[profiles.x]\n", "profiles.x.bootstrap_servers must be a text"),
        ("[profiles.x]\nbootstrap_servers = ''\n", "profiles.x.bootstrap_servers must be a text"),
        ("[profiles.x]\nbootstrap_servers = ['a:1']\n", "profiles.x.bootstrap_servers must be a text"),
        ("[profiles.x]\nbootstrap_servers = 'a'\n", "profiles.x.bootstrap_servers: 'a': "),
        ("[profiles.x]\nbootstrap_servers = 'a:1'\ncommand_config = 'x'\n", "must be an absolute path"),
        ("[profiles.x]\nbootstrap_servers = 'a:1'\npassword = 'hunter2'\n", "profiles.x.password: unknown key"),
    ],
)
def test_a_malformed_file(file: Path, text: str | bytes, problem: str) -> None:
    file.parent.mkdir()
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = file.read_bytes()
    new = ("profile", "create", "y", "--bootstrap-server", NO_NODE)
    for arguments in (("topic", "list"), ("profile", "list"), ("profile", "delete", "x"), new):
        said = refused(run(*arguments))
        assert said.count("\n") == 1
        assert said.startswith(f"Error: {file}: ")
        assert problem in said
        assert "correct it, or delete the file" in said
        assert SECRET not in said
    assert file.read_bytes() == before
    assert "no node answers" in refused(run("topic", "list", "--bootstrap-server", NO_NODE)), "it is not read"
    done("console", "alarms", "check", str(ROOT / "deploy/console/alarms.toml"))  # which connects to no cluster


def test_a_file_that_cannot_be_read_or_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.mkdir(parents=True)
    for arguments in (("topic", "list"), ("profile", "list"), ("profile", "use", "x")):
        said = refused(run(*arguments))
        assert f"{file} cannot be read: Is a directory: make it readable, or name another file" in said
    file.rmdir()
    os.mkfifo(file)
    assert "not a regular file" in refused(run("topic", "list")), "it does not wait for a writer"
    monkeypatch.setenv("STREAMLOG_PROFILES", f"{__file__}/profiles.toml")
    assert "cannot be written: " in refused(run("profile", "create", "x", "--bootstrap-server", NO_NODE))


def test_where_the_file_is(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMLOG_PROFILES")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    create("a", NO_NODE)
    assert (tmp_path / "home/.config/streamlog/profiles.toml").exists()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    create("b", NO_NODE)
    assert list(read_profiles().by_name) == ["b"]
    assert (tmp_path / "xdg/streamlog/profiles.toml").exists()
    assert not list(tmp_path.glob("**/*.new"))


def test_another_users_home_is_no_reason_to_fail(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME kept by sudo: the folder is out of sight. A file that is seen, or named, must be readable."""

    def refuse(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(file.parent.parent))
    monkeypatch.setattr(profiles, "read_regular", refuse)
    assert "cannot be read: Permission denied" in refused(run("profile", "list"))
    monkeypatch.delenv("STREAMLOG_PROFILES")
    monkeypatch.setattr(os, "lstat", refuse)
    assert not read_profiles().by_name
    monkeypatch.undo()

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("STREAMLOG_PROFILES", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert not read_profiles().by_name
    assert "The home directory is unknown" in refused(run("profile", "create", "x", "--bootstrap-server", NO_NODE))


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    file.symlink_to(tmp_path / "dotfiles.toml")
    create("x", NO_NODE)
    assert file.is_symlink()
    assert (tmp_path / "dotfiles.toml").read_text().startswith("# Written by")


def test_writers_at_the_same_time_lose_nothing(file: Path) -> None:
    names = [f"p{number}" for number in range(20)]
    start = threading.Barrier(len(names))

    def write(name: str) -> None:
        added = Profile(name=name, servers=(NO_NODE,))
        start.wait()
        change_profiles(lambda old: Profiles(current=old.current, by_name={**old.by_name, name: added}))

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_profiles().by_name) == sorted(names)


@given(path=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_read(path: str) -> None:
    one = Profile(name="a.b", servers=("a:1", "[::1]:2"), command_config=f"/{path}")
    written = Profiles(current="a.b", by_name={"a.b": one, "c": Profile(name="c", servers=("c:3",))})
    assert profiles._parsed(profiles._text(written).encode(), Path("x")) == written


@pytest.mark.parametrize("words", ["profile use p", "profile show p", "profile delete p", "topic list --profile p"])
def test_names_are_completed(file: Path, words: str) -> None:
    for name in ("prod", "pre", "test"):
        create(name, NO_NODE)
    line = f"streamlogctl {words}"
    environment = {
        "_STREAMLOGCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    completed = CliRunner().invoke(main, [], env=environment, prog_name="streamlogctl")
    assert completed.stdout.split() == ["plain,prod", "plain,pre"]
    file.write_text("=")
    assert CliRunner().invoke(main, [], env=environment, prog_name="streamlogctl").output.strip() == ""


def test_help_has_examples() -> None:
    for verb in commands.profile.commands:
        assert f"streamlogctl profile {verb}" in done("profile", verb, "--help").stdout


def test_the_tests_do_not_see_the_developers_profiles() -> None:
    assert not read_profiles().by_name
    assert "cannot be written" in refused(run("profile", "create", "x", "--bootstrap-server", NO_NODE))
