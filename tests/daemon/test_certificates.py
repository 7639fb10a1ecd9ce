"""A running node warns of certificates that will expire, once a day, and shows when they do."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pytest

from streamlog.config import Config, PropertiesFile, load_node
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.tls import NodeCertificates, certificate_families, node_certificates
from streamlog.errors import InvalidConfigError
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import as_properties, node_settings

DAY = datetime.timedelta(days=1)


class Rig:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority.create(directory)
        self.out = io.StringIO()

    def config(self) -> Config:
        text = as_properties({**node_settings(self.authority.directory, 1, "127.0.0.1:0"), "log.dirs": "/d"})
        return load_node(PropertiesFile("s", text)).config

    def certificates(self, *, days: int) -> NodeCertificates:
        self.renew(days)
        [found] = node_certificates(self.config(), LogLines(1, self.out)).values()
        return found

    def renew(self, days: int) -> None:
        self.authority.add_node(1, ["127.0.0.1"], days=days, renew=True)

    @property
    def warnings(self) -> int:
        return self.out.getvalue().count("expires in")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_one_warning_a_day_from_30_days_before(rig: Rig) -> None:
    certificates = rig.certificates(days=100)
    expires = certificates.material.expires
    for days_left, warnings in ((31, 0), (29.9, 1), (29.8, 1), (29, 1), (28.8, 2), (1, 3)):
        certificates.warn_if_due(expires - days_left * DAY)
        assert rig.warnings == warnings
    assert "CN=node-1,O=streamlog expires in 1 days" in rig.out.getvalue()


def test_a_renewed_certificate_is_looked_at_afresh(rig: Rig) -> None:
    certificates = rig.certificates(days=10)
    assert rig.warnings == 1
    rig.renew(5)
    certificates.load()
    now = datetime.datetime.now(datetime.UTC)
    certificates.warn_if_due(now)
    assert rig.warnings == 2
    rig.renew(300)
    certificates.load()
    certificates.warn_if_due(now + 2 * DAY)
    assert rig.warnings == 2


def test_the_metric_is_of_the_material_in_use(rig: Rig) -> None:
    certificates = rig.certificates(days=10)
    [family] = certificate_families([certificates])
    first = dict(family.samples)
    assert first["keystore",] == certificates.material.expires.timestamp()
    assert first["truststore",] == certificates.material.roots_expire.timestamp()
    (rig.authority.directory / "node-1.pem").write_text("")
    with pytest.raises(InvalidConfigError):
        certificates.load()
    assert dict(certificate_families([certificates])[0].samples) == first
    assert certificate_families([])[0].samples == []
