"""${file:...} and ${env:...} in settings: whose values they take, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlog.config import PropertiesFile, load_node
from streamlog.config.references import has_reference
from streamlog.config.settings import node_settings
from streamlog.config_providers import read_reference, with_chosen_values, with_values
from streamlog.errors import InvalidConfigError

SECRET = "hunter2-planted"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text(f"password={SECRET}\npartitions=7\nodd=a${{env:HOME}}b\n")
    path.chmod(0o600)
    return path


def resolved(text: str) -> str:
    return with_values({"x": text}, "f")["x"]


def test_a_file_and_the_environment(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLOG_TEST", "from environment")
    assert resolved(f"${{file:{secrets}:password}}") == SECRET
    assert resolved("${env:STREAMLOG_TEST}") == "from environment"
    assert resolved(f"a ${{env:STREAMLOG_TEST}} b ${{file:{secrets}:partitions}} c") == "a from environment b 7 c"


def test_what_is_read_is_not_searched_again(secrets: Path) -> None:
    assert resolved(f"${{file:{secrets}:odd}}") == "a${env:HOME}b"


@pytest.mark.parametrize("text", ["$1", "${name}", "${vault:a:b}", "$env:HOME", "RULE:^CN=(.*?)$/$1/"])
def test_other_text_stays(text: str) -> None:
    assert resolved(text) == text
    assert not has_reference(text)


def test_what_cannot_be_read_is_named(secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMLOG_TEST", raising=False)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "binary").chmod(0o600)
    (tmp_path / "broken").write_text(f"={SECRET}\n")
    (tmp_path / "broken").chmod(0o600)
    for text, reason in (
        ("${env:STREAMLOG_TEST}", "environment variable STREAMLOG_TEST is not set"),
        (f"${{file:{secrets}:nothing}}", f"{secrets} has no key nothing"),
        (f"${{file:{tmp_path}/missing:key}}", "cannot be read: No such file or directory"),
        (f"${{file:{tmp_path}:key}}", "cannot be read: Is a directory"),
        ("${file:key}", "a reference to a file is ${file:PATH:KEY}"),
        (f"${{file:{tmp_path}/binary:key}}", "is not a text file"),
        (f"${{file:{tmp_path}/broken:key}}", "is not a properties file"),
    ):
        with pytest.raises(InvalidConfigError) as caught:
            with_values({"sasl.password": text}, "client.properties")
        assert str(caught.value).startswith("client.properties: sasl.password: ")
        assert reason in str(caught.value)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_is_refused(secrets: Path, mode: int) -> None:
    secrets.chmod(mode)
    with pytest.raises(InvalidConfigError, match=rf"other users can read .* \(mode {mode:04o}\): chmod 600"):
        resolved(f"${{file:{secrets}:password}}")


def test_a_nodes_settings(secrets: Path) -> None:
    text = f"node.id=1\nnum.partitions=${{file:{secrets}:partitions}}\nconfig.providers=file\n"
    loaded = load_node(PropertiesFile("f", text), read=read_reference)
    assert loaded.config[node_settings.NUM_PARTITIONS] == 7
    assert loaded.warnings == ()
    overridden = load_node(None, ["node.id=1", f"num.partitions=${{file:{secrets}:partitions}}"], read=read_reference)
    assert overridden.config[node_settings.NUM_PARTITIONS] == 7


def test_all_that_is_wrong_with_a_nodes_references_is_reported_with_its_line(secrets: Path) -> None:
    text = (
        f"node.id=1\nnum.partitions=${{file:{secrets}:password}}\nssl.keystore.key=${{file:{secrets}:a}}\n"
        f"broker.rack=${{file:{secrets}:b}}\nnode.id=${{file:{secrets}:c}}\n"
    )
    with pytest.raises(InvalidConfigError) as caught:
        load_node(PropertiesFile("f", text), read=read_reference)
    message = str(caught.value)
    assert f"f:3: ssl.keystore.key: {secrets} has no key a" in message
    assert f"f:4: broker.rack: {secrets} has no key b" in message
    assert "f:2: num.partitions=[hidden]: is not valid" in message
    assert message.count("broker.rack") == 1
    assert f"f:5: node.id: {secrets} has no key c" in message
    assert "must be" not in message, "what could not be read is reported once"
    assert SECRET not in message


def test_a_programs_settings_need_the_providers_name(secrets: Path) -> None:
    """A program may get its settings from others, who must not read its files and variables (CVE-2024-31141)."""
    reference = f"${{file:{secrets}:password}}"
    assert with_chosen_values({"sasl.password": reference}) == {"sasl.password": reference}
    named = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}
    assert with_chosen_values({"sasl.password": reference, "linger.ms": 5, **named}) == {
        "sasl.password": SECRET,
        "linger.ms": 5,
    }
    with pytest.raises(InvalidConfigError, match=r"sasl\.password: provider env is not in config\.providers=file"):
        with_chosen_values({"sasl.password": "${env:HOME}", **named})
    with pytest.raises(InvalidConfigError, match="unknown provider vault; there are file, env"):
        with_chosen_values({"config.providers": "vault"})


def test_a_secret_on_the_command_line_is_warned_of(secrets: Path) -> None:
    warnings = load_node(None, ["node.id=1", f"ssl.keystore.key={SECRET}"], read=read_reference).warnings
    assert any("other users see ssl.keystore.key in the list of processes" in line for line in warnings)
    assert SECRET not in "".join(warnings)
    reference = f"ssl.keystore.key=${{file:{secrets}:password}}"
    assert load_node(None, ["node.id=1", reference], read=read_reference).warnings == ()
