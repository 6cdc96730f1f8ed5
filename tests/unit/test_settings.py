"""``once_more_*``: read from wherever Celery is configured, and every wrong value refused with a sentence."""

import dataclasses
import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import Celery
from django.conf import LazySettings

from celery_once_more import ConfigurationError
from celery_once_more.settings import PREFIX, Settings

DURATIONS = ["lease", "queue_lease", "redelivery_window"]
NAMES = [f.name for f in dataclasses.fields(Settings)]
WRONG = {
    **dict.fromkeys(DURATIONS, (0, -1, True, "60", float("nan"), float("inf"), timedelta(0), timedelta(-1), [60], {})),
    "redis_url": ["", 5, b"redis://h", ["redis://h"], True],
    "redis_options": ["socket_timeout=1", 5, [("db", 1)], True],
    "key_prefix": ["", 5, b"prefix", True, "a{b", "a}b", "{a}"],
    "on_outage": ["", "Raise", "ignore", True, 5, ["raise"]],
    "reap_limit": [0, -1, 1.5, "1000", True, float("inf")],
}
#: what each sentence says that the value must be
MUST = {
    **dict.fromkeys(DURATIONS, "must be a positive number of seconds or a timedelta, not "),
    "redis_url": "must be a string that is not empty, not ",
    "redis_options": "must be a dict of redis-py options, not ",
    "key_prefix": "must ",
    "on_outage": "must be one of 'raise', 'proceed', not ",
    "reap_limit": "must be a whole number of at least 1, not ",
}


def read(**given):
    return Settings.from_conf(given)


def test_every_setting_has_wrong_values_here():
    assert set(WRONG) == set(NAMES) == set(MUST)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]], ids=repr)
def test_a_wrong_value_is_refused_and_the_sentence_names_the_setting(name, value):
    with pytest.raises(ConfigurationError) as caught:
        read(**{PREFIX + name: value})
    assert str(caught.value).startswith(f"{PREFIX}{name} {MUST[name]}")
    assert repr(value) in str(caught.value) or "timedelta" in repr(value)


def test_defaults_are_those_of_the_documentation():
    assert read() == Settings(
        redis_url=None,
        redis_options={},
        key_prefix="once-more",
        lease=60.0,
        queue_lease=86_400.0,
        redelivery_window=7_200.0,
        on_outage="raise",
        reap_limit=1000,
    )


@pytest.mark.parametrize("name", NAMES)
def test_none_means_the_default(name):
    assert read(**{PREFIX + name: None}) == Settings()


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("value", "seconds"), [(5, 5.0), (0.25, 0.25), (timedelta(minutes=2, milliseconds=500), 120.5)], ids=repr
)
def test_a_duration_is_seconds_or_a_timedelta(name, value, seconds):
    assert getattr(read(**{PREFIX + name: value}), name) == seconds


def test_right_values_are_taken():
    settings = read(
        once_more_redis_url="redis://h/2",
        once_more_redis_options={"socket_timeout": 5},
        once_more_key_prefix="shop",
        once_more_on_outage="proceed",
        once_more_reap_limit=1,
    )
    assert settings.redis_url == "redis://h/2"
    assert settings.redis_options == {"socket_timeout": 5}
    assert (settings.key_prefix, settings.on_outage, settings.reap_limit) == ("shop", "proceed", 1)


def test_settings_are_frozen_and_do_not_share_the_callers_dict():
    options = {"socket_timeout": 5}
    settings = read(once_more_redis_options=options)
    options["socket_timeout"] = 6
    assert settings.redis_options == {"socket_timeout": 5}
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.lease = 5.0


@pytest.mark.parametrize(
    ("unknown", "hint"),
    [
        ("once_more_leese", "did you mean 'once_more_lease'?"),
        ("once_more_outage", "did you mean 'once_more_on_outage'?"),
        ("once_more_redis", "did you mean 'once_more_redis_url'?"),
        ("once_more_queue_leases", "did you mean 'once_more_queue_lease'?"),
        ("once_more_zzz", "once_more_lease"),
        ("once_more_", "once_more_lease"),
    ],
)
def test_an_unknown_setting_is_refused_with_a_suggestion(unknown, hint):
    with pytest.raises(ConfigurationError, match=f"unknown setting '{unknown}'") as caught:
        read(**{unknown: 5})
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["lock_info", "dead_letter_limit", "dead_letter_ttl"])
def test_a_setting_of_a_later_version_is_unknown_to_this_one(name):
    with pytest.raises(ConfigurationError, match=f"unknown setting '{PREFIX}{name}'"):
        read(**{PREFIX + name: 5})


def test_other_settings_are_nobodys_business_here():
    assert read(broker_url="redis://h", once="more", oncemore_lease=5, worker_once_more_lease=5) == Settings()


# where a configuration comes from


@pytest.fixture
def bare():
    return Celery("unit", set_as_current=False)


def test_an_app_without_any_has_the_defaults(bare):
    assert Settings.from_conf(bare.conf) == Settings()


def test_from_attributes_of_the_configuration(bare):
    bare.conf.once_more_lease = 5
    assert Settings.from_conf(bare.conf).lease == 5.0


def test_from_an_update(bare):
    bare.conf.update(once_more_lease=timedelta(seconds=5), once_more_on_outage="proceed")
    settings = Settings.from_conf(bare.conf)
    assert (settings.lease, settings.on_outage) == (5.0, "proceed")


def test_from_an_update_before_an_object_is_read(bare):
    bare.conf.once_more_lease = 5
    bare.config_from_object(SimpleNamespace(broker_url="redis://h"))
    assert Settings.from_conf(bare.conf).lease == 5.0


@pytest.mark.parametrize("name", ["once_more_lease", "ONCE_MORE_LEASE", "Once_More_Lease"])
def test_from_an_object_in_any_case(bare, name):
    bare.config_from_object(SimpleNamespace(**{name: 5}))
    assert Settings.from_conf(bare.conf).lease == 5.0


def test_from_the_constructor():
    app = Celery("unit", set_as_current=False, config_source={"once_more_lease": 5})
    assert Settings.from_conf(app.conf).lease == 5.0


def test_an_unknown_one_of_an_app_is_refused(bare):
    bare.conf.once_more_leese = 5
    with pytest.raises(ConfigurationError, match="did you mean 'once_more_lease'"):
        Settings.from_conf(bare.conf)


def django_settings(**settings):
    lazy = LazySettings()
    lazy.configure(**settings)
    return lazy


@pytest.mark.parametrize("namespace", ["CELERY", "SHOP_CELERY"])
def test_through_djangos_namespace(bare, namespace):
    given = {
        f"{namespace}_ONCE_MORE_REDIS_URL": "redis://h/2",
        f"{namespace}_ONCE_MORE_REDIS_OPTIONS": {"socket_timeout": 5},
        f"{namespace}_ONCE_MORE_KEY_PREFIX": "shop",
        f"{namespace}_ONCE_MORE_LEASE": timedelta(seconds=5),
        f"{namespace}_ONCE_MORE_QUEUE_LEASE": 6,
        f"{namespace}_ONCE_MORE_REDELIVERY_WINDOW": 7,
        f"{namespace}_ONCE_MORE_ON_OUTAGE": "proceed",
        f"{namespace}_ONCE_MORE_REAP_LIMIT": 8,
    }
    assert len(given) == len(NAMES)
    bare.config_from_object(django_settings(**given), namespace=namespace)
    assert Settings.from_conf(bare.conf) == Settings(
        redis_url="redis://h/2",
        redis_options={"socket_timeout": 5},
        key_prefix="shop",
        lease=5.0,
        queue_lease=6.0,
        redelivery_window=7.0,
        on_outage="proceed",
        reap_limit=8,
    )


def test_an_unknown_one_in_djangos_namespace_is_refused(bare):
    bare.config_from_object(django_settings(CELERY_ONCE_MORE_LEESE=5), namespace="CELERY")
    with pytest.raises(ConfigurationError, match="did you mean"):
        Settings.from_conf(bare.conf)


def test_a_wrong_one_in_djangos_namespace_is_refused(bare):
    bare.config_from_object(django_settings(CELERY_ONCE_MORE_LEASE="60"), namespace="CELERY")
    with pytest.raises(ConfigurationError, match="once_more_lease must be a positive number"):
        Settings.from_conf(bare.conf)


def test_djangos_own_settings_are_not_ours(bare):
    bare.config_from_object(django_settings(CELERY_BROKER_URL="redis://h", DEBUG=True), namespace="CELERY")
    assert Settings.from_conf(bare.conf) == Settings()


def test_what_an_app_sets_itself_beside_djangos_counts_as_celery_counts_it(bare):
    bare.config_from_object(django_settings(CELERY_ONCE_MORE_LEASE=5), namespace="CELERY")
    bare.conf.once_more_lease = 6
    assert Settings.from_conf(bare.conf).lease == bare.conf.once_more_lease


PROGRAM = """
from celery import Celery
from celery_once_more.runtime import runtime
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
settings = runtime(app).settings
print(settings.lease, settings.on_outage)
"""


def test_a_django_project_as_celerys_documentation_has_it(tmp_path):
    (tmp_path / "shop_settings.py").write_text(
        'CELERY_ONCE_MORE_LEASE = 5\nCELERY_ONCE_MORE_ON_OUTAGE = "proceed"\nSECRET_KEY = "x"\n'
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop_settings", "PYTHONPATH": path}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["5.0", "proceed"], told.stderr
