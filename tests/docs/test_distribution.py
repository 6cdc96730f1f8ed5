"""What would be uploaded."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True)
    return folder


def sources():
    files = (path for path in (ROOT / "celery_once_more").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built):
    [wheel] = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert {"celery_once_more/py.typed", "celery_once_more/locks/lua/start.lua"} <= names


def test_the_source_distribution_has_the_package_and_its_papers(built):
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert sources() | {"README.md", "LICENSE", "pyproject.toml"} <= names
    assert not [name for name in names if name.startswith(".venv")]
