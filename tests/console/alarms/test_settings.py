"""The file of rules: what is valid, what an error says, what an edit changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tomlkit", reason="streamlog[console] is not installed")

from hypothesis import example, given
from hypothesis import strategies as st

from streamlog.console.alarms.channels import EmailChannel, HttpChannel
from streamlog.console.alarms.durations import DURATION_MAX_S, duration_s, duration_text
from streamlog.console.alarms.rules import DEFAULT_RULES, KINDS, AlarmRule, RuleKind, Unit
from streamlog.console.alarms.settings.rule_file import RuleFileError, read_settings, with_rule, without_rule
from streamlog.console.alarms.settings.rule_storage import FILE_BYTES_MAX, RuleStorage, check_file
from streamlog.monitor import Severity

FILE = """
# reviewed
metrics = ["http://node1:9644/metrics"]

[rules.billing-lag]  # of the invoices
kind = "lag_records"
above = 10_000
groups = ["billing*"]
for = "5m"
channels = ["ops"]

[rules.under-replicated]
kind = "under_replicated"
enabled = false

[channels.ops]
type = "webhook"
url = "https://example.org/hook"
secret = "${env:HOOK_SECRET}"
headers = {Authorization = "Bearer ${file:/run/token}"}

[channels.mail]
type = "email"
server = "smtp.example.org:587"
from = "streamlog@example.org"
to = ["ops@example.org"]
username = "streamlog"
password = "${file:/run/password}"
send_resolved = false
"""


def test_a_file_is_read_and_the_defaults_are_completed() -> None:
    found = read_settings(FILE)
    lag = found.rules["billing-lag"]
    assert (lag.kind, lag.above, lag.for_s, lag.groups) == (RuleKind.LAG_RECORDS, 10_000, 300, ("billing*",))
    assert not found.rules["under-replicated"].enabled
    assert found.own == {"billing-lag", "under-replicated"}
    assert set(found.rules) == {rule.name for rule in DEFAULT_RULES} | found.own
    ops, mail = found.channels["ops"], found.channels["mail"]
    assert isinstance(ops, HttpChannel)
    assert isinstance(mail, EmailChannel)
    assert ops.shown == "https://example.org"
    assert not mail.send_resolved
    assert set(read_settings("defaults = false").rules) == set()
    assert set(read_settings("").rules) == {rule.name for rule in DEFAULT_RULES}


RULE = '[rules.r]\nkind = "lag_records"\nabove = 5\n'
HOOK = '[channels.c]\ntype = "webhook"\nurl = "http://a/"\n'
MAIL = '[channels.c]\ntype = "email"\nserver = "a:25"\nfrom = "a@b"\nto = ["c@d"]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = ", "not TOML: "),
        ("colour = 1", "colour: unknown; the file has rules, channels, metrics, defaults"),
        ("rules = 1", "rules: must be tables, such as [rules.NAME]"),
        ("metrics = ['node1:9644']", "metrics: must be a URL of http or https"),
        ("defaults = 1", "defaults: must be true or false, not a number"),
        ("[rules.'a b']\nkind = 'node_down'", "rule 'a b': the name must be at most 64 letters"),
        ("[rules]\nr = 1", "rule r: must be a table, such as [rules.r]"),
        ("[rules.r]", "rule r: kind: missing"),
        ("[rules.r]\nkind = 'x'", "rule r: kind: 'x' must be one of cluster_unreachable, "),
        ("[rules.r]\nkind = 'lag_records'", "rule r: above: lag_records needs a threshold"),
        ("[rules.r]\nkind = 'node_down'\nabove = 1", "rule r: above: node_down has no threshold"),
        ("[rules.r]\nkind = 'node_down'\ntopics = ['a']", "rule r: topics: node_down has no such filter"),
        ("[rules.r]\nkind = 'no_writes'\nabove = '5m'", "rule r: topics: no_writes needs patterns of names"),
        ("[rules.r]\nkind = 'lag_seconds'\nabove = 5", 'rule r: above: must be a duration in quotes, such as "30s"'),
        ("[rules.r]\nkind = 'disk_used'\nabove = 90", "rule r: above: 90 must be in 0..1"),
        (RULE + "above2 = 5", "rule r: above2: unknown field"),
        (RULE + "for = '5 m'", "rule r: for: '5 m' must be a duration such as 200ms, 30s, 5m, 1h or 2d"),
        (RULE + "for = '999d'", "rule r: for: '999d' must be at most 366d"),
        (RULE + "severity = 'bad'", "rule r: severity: 'bad' must be one of critical, warning"),
        (RULE + "groups = 'a'", "rule r: groups: must be a list of texts"),
        (RULE + "groups = []", "rule r: groups: must have 1 to 200 entries"),
        (RULE + "enabled = 'no'", "rule r: enabled: must be true or false, not text"),
        (RULE + "channels = ['x']", "rule r: channels: there is no channel x"),
        ("[rules.r]\nkind = 'node_down'\nnodes = ['a']", "rule r: nodes: must be a list of node ids"),
        ("[rules.r]\nkind = ['node_down']", "rule r: kind: ['node_down'] must be one of "),
        (
            "[channels.c]\ntype = 'pigeon'",
            "channel c: type: 'pigeon' must be one of webhook, slack, dingtalk, wecom, email",
        ),
        ("[channels.c]\ntype = 'slack'\nurl = 'ftp://a'", "channel c: url: must be a URL of http or https"),
        (HOOK + "secret = 'abc'", "channel c: secret: must be a reference, ${env:NAME} or ${file:/path}"),
        (HOOK + "headers = {'a b' = 'c'}", "channel c: headers: 'a b' is not the name of a header"),
        (HOOK.replace("webhook", "wecom") + "secret = '${env:A}'", "channel c: secret: wecom has none"),
        (HOOK + "to = ['a@b']", "channel c: to: unknown field"),
        (MAIL.replace("a:25", "a"), "channel c: server: 'a' must be HOST:PORT"),
        (MAIL.replace("c@d", "c"), "channel c: to: 'c' is not a mail address"),
        (MAIL.replace("c@d", "c@d\\nBcc: x@y"), "channel c: to: must be at most 2000 printable characters"),
        (MAIL + "username = 'a'", "channel c: username: username and password must be given together"),
        (MAIL + "tls = 'none'\nusername = 'a'\npassword = '${env:P}'", "channel c: tls: a password is not sent"),
    ],
)
def test_an_error_names_rule_field_and_reason(text: str, problem: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        read_settings(text)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(problem)


def test_the_errors_of_all_rules_are_reported_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "alarms.toml"
    path.write_text("[rules.a]\nkind = 'x'\n[rules.b]\n[channels.c]\ntype = 'slack'\n")
    with pytest.raises(RuleFileError) as caught:
        check_file(path)
    assert [one.split(": ")[:3] for one in caught.value.problems] == [
        [str(path), "channel c", "url"],
        [str(path), "rule a", "kind"],
        [str(path), "rule b", "kind"],
    ]
    with pytest.raises(FileNotFoundError):
        check_file(tmp_path / "none.toml")


NAMES = st.lists(st.from_regex(r"!?[a-z*?]{1,8}", fullmatch=True), min_size=1, max_size=3).map(tuple)


@st.composite
def rules(draw: st.DrawFn) -> AlarmRule:
    kind = draw(st.sampled_from(RuleKind))
    unit, filters = KINDS[kind].unit, KINDS[kind].filters
    above = {
        Unit.NONE: st.just(0.0),
        Unit.COUNT: st.integers(0, 10**12).map(float),
        Unit.SECONDS: st.integers(0, 10**9).map(lambda ms: ms / 1000),
        Unit.SHARE: st.floats(0, 1),
    }[unit]
    return AlarmRule(
        name=draw(st.from_regex(r"[a-z][a-z0-9._-]{0,10}", fullmatch=True)),
        kind=kind,
        severity=draw(st.sampled_from(Severity)),
        above=draw(above),
        for_s=float(draw(st.integers(0, 10**6))),
        keep_firing_for_s=float(draw(st.integers(0, 10**6))),
        topics=draw(NAMES) if "topics" in filters else ("*",),
        groups=draw(NAMES) if "groups" in filters else ("*",),
        nodes=tuple(draw(st.lists(st.integers(0, 9), max_size=3))) if "nodes" in filters else (),
        enabled=draw(st.booleans()),
    )


@given(rules(), st.sampled_from(["", FILE]))
def test_a_rule_that_is_saved_is_read_again(rule: AlarmRule, text: str) -> None:
    once = with_rule(text, rule)
    assert read_settings(once).rules[rule.name] == rule
    assert with_rule(once, rule) == once
    assert rule.name not in read_settings(without_rule(once, rule.name)).own


def test_an_edit_keeps_the_rest_of_the_text() -> None:
    rule = read_settings(FILE).rules["billing-lag"]
    changed = with_rule(FILE, AlarmRule(name="new", kind=RuleKind.NODE_DOWN))
    assert changed.startswith("\n# reviewed\n")
    assert "[rules.billing-lag]  # of the invoices" in changed
    assert with_rule(FILE, rule).count("10_000") == 1, "what did not change is not written again"
    assert without_rule(FILE, "unknown") == FILE


@given(st.integers(0, int(DURATION_MAX_S) * 1000))
@example(51)
def test_durations_are_read_as_they_are_written(ms: int) -> None:
    assert duration_s(duration_text(ms / 1000)) == ms / 1000


def test_the_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "alarms.toml"
    storage = RuleStorage(path)
    assert storage.reload()
    assert not storage.reload()
    assert storage.complete, "without a file the defaults are in force"
    path.write_text(RULE)
    assert storage.reload()
    assert storage.settings.rules["r"].above == 5
    path.write_text(RULE.replace("5", "'"))
    assert storage.reload()
    assert storage.problems[0].startswith(f"{path}: not TOML")
    assert storage.settings.rules["r"].above == 5, "the last valid rules are in force"
    with pytest.raises(RuleFileError):
        storage.edit(lambda text: text)
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    storage.reload()
    assert "larger than" in storage.problems[0]
    path.write_bytes(b"\xff")
    storage.reload()
    assert "not UTF-8" in storage.problems[0]
    path.unlink()
    storage.reload()
    assert "r" not in storage.settings.rules


def test_a_file_that_cannot_be_read_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "alarms.toml"
    path.write_text(RULE)
    storage = RuleStorage(path)
    storage.reload()
    path.unlink()
    path.mkdir()
    assert storage.reload()
    assert storage.problems == [f"{path}: Is a directory"]
    assert not storage.reload(), "nothing has changed"
    path.rmdir()
    assert storage.reload()
    assert storage.complete
    assert "r" not in storage.settings.rules
    path.mkdir()
    storage.reload()
    path.rmdir()
    path.write_text(RULE)
    assert storage.reload()
    assert "r" in storage.settings.rules


def test_an_edit_is_written_in_utf_8_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "alarms.toml"
    path.write_text(f"# für Tests\n{RULE}", encoding="utf-8")
    script = (
        "import pathlib, sys\n"
        "from streamlog.console.alarms.settings.rule_storage import RuleStorage\n"
        "RuleStorage(pathlib.Path(sys.argv[1])).edit(lambda text: text + '# end\\n')\n"
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", script, str(path)], env=env, check=True)
    assert path.read_text(encoding="utf-8") == f"# für Tests\n{RULE}# end\n"


def test_a_rule_is_added_to_an_inline_table() -> None:
    rule = AlarmRule(name="n", kind=RuleKind.NO_QUORUM)
    text = with_rule('rules = {a = {kind = "node_down"}}\n', rule)
    assert set(read_settings(text).own) == {"a", "n"}
    assert read_settings(text).rules["n"] == rule
    assert without_rule(text, "n") == 'rules = {a = {kind = "node_down"}}\n'


def test_the_example_is_valid() -> None:
    example = check_file(Path(__file__).parents[3] / "deploy" / "console" / "alarms.toml")
    assert len(example.own) == 3
    assert set(example.channels) == {"ops", "mail"}


def test_an_edit_replaces_the_file_and_keeps_link_and_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "versioned.toml", tmp_path / "alarms.toml"
    real.write_text(RULE)
    real.chmod(0o640)
    link.symlink_to(real)
    storage = RuleStorage(link)
    storage.edit(lambda text: text + "for = '1m'\n")
    assert storage.settings.rules["r"].for_s == 60
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    with pytest.raises(RuleFileError):
        storage.edit(lambda text: text + "wrong = 1\n")
    assert "wrong" not in real.read_text()
    assert sorted(os.listdir(tmp_path)) == ["alarms.toml", "versioned.toml"]
