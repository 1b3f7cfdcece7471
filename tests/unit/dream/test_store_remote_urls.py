"""URLs of runs: which are refused and with which words, and what is said where storage says no."""

import copy
import http.server
import socket
import threading
from pathlib import Path

import pytest

from dream.errors import UnavailableError, UsageError
from dream.store import RunFolder, RunFolderError
from dream.store.objects import ObjectPath, Objects
from dream.store.places import locate


@pytest.mark.parametrize("text", ["runs/first", "/runs/first", "~/x", "a:b"])
def test_paths_stay_paths(text):
    assert locate(text) == Path(text)


@pytest.mark.parametrize("text", ["file:///runs/first", "local:///runs/first"])
def test_urls_of_this_machine_are_paths(text):
    assert locate(text) == Path("/runs/first")


def test_a_url_is_joined_and_taken_apart_like_a_path():
    url = locate("memory://bucket/runs/first/")
    assert isinstance(url, ObjectPath)
    assert (str(url), url.name, str(url.parent)) == ("memory://bucket/runs/first", "first", "memory://bucket/runs")
    assert url / "config.yaml" == locate("memory://bucket/runs/first/config.yaml")
    assert len({url, locate(url), locate(str(url))}) == 1
    assert str(url.parent.parent.parent) == "memory://bucket"
    assert copy.deepcopy({"run_dir": url}) == {"run_dir": url}, "copied by its URL, as pickle does"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s33://bucket/x", r"s33:// is no storage.*did you mean s3://bucket/x\?"),
        ("qqqqqq://bucket/x", r"s3://, gs:// and paths are"),
        ("simplecache::s3://bucket/x", "is no storage"),
        ("memory://", "names no bucket: give memory://bucket/folder"),
        ("memory:///", "names no bucket"),
        ("memory://b/runs[1]", r"holds '\['"),
        ("memory://b/x?versionId=1", r"holds '\?'"),
        (Path("memory://bucket/x"), "keeps one slash of two.*'memory://"),
    ],
)
def test_urls_that_name_no_run_are_refused(text, words):
    with pytest.raises(UsageError, match=words):
        locate(text)


@pytest.mark.parametrize(("url", "words"), [("gs://b/x", r"'dream-cfr\[gcs\]'"), ("abfs://b/x", "adlfs")])
def test_a_missing_package_is_named(url, words, monkeypatch):
    import fsspec

    def missing(protocol, **_):
        raise ImportError("Install adlfs to access it")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(UnavailableError, match=words):
        locate(url)


class Refusing:
    """A filesystem that answers everything with one error."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        def refuse(*_, **__):
            raise self._error

        return (lambda text: text) if name == "_strip_protocol" else refuse


class DefaultCredentialsError(Exception):
    """As of a cloud's library."""


@pytest.mark.parametrize(
    ("error", "protocol", "words"),
    [
        (PermissionError("Access Denied"), "s3", r"no permission \(Access Denied\): check the credentials"),
        (DefaultCredentialsError("none found"), "gs", r"no credentials \(none found\): set GOOGLE_APPLICATION"),
        (OSError(5, "reset"), "s3", "reset"),
        (TimeoutError(), "s3", "TimeoutError"),
        (NotImplementedError(), "http", "http:// cannot be written to"),
        (FileNotFoundError("The specified bucket does not exist"), "s3", "there is no bucket 'b': make it"),
    ],
)
def test_what_storage_refuses_is_one_clear_error(error, protocol, words):
    run = ObjectPath(Objects(protocol, Refusing(error)), "b/x")
    for use in (lambda: RunFolder.open(run), lambda: RunFolder.create(run, ""), lambda: RunFolder.holds_run(run)):
        with pytest.raises(RunFolderError, match=words) as caught:
            use()
        assert f"{protocol}://b/x" in str(caught.value)


def test_faults_of_our_own_are_not_disguised():
    run = ObjectPath(Objects("s3", Refusing(AttributeError("a bug"))), "b/x")
    with pytest.raises(AttributeError, match="a bug"):
        RunFolder.open(run)


@pytest.fixture
def fresh_s3(s3, monkeypatch):
    """Settings of the environment count for connections that a test opens, and for no others."""
    import fsspec

    kind = fsspec.get_filesystem_class("s3")
    kind.clear_instance_cache()
    yield monkeypatch
    kind.clear_instance_cache()


def test_no_such_bucket(s3):
    for use in (RunFolder.open, lambda url: RunFolder.create(url, "")):
        with pytest.raises(RunFolderError, match="there is no bucket 'nobody-made-it'"):
            use("s3://nobody-made-it/runs/x")


def test_no_credentials(fresh_s3, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        fresh_s3.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        fresh_s3.setenv(name, str(tmp_path / "none"))
    with pytest.raises(RunFolderError, match=r"no credentials .*AWS_ACCESS_KEY_ID"):
        RunFolder.open("s3://some-bucket/x")


def test_a_server_that_is_not_there_is_named(fresh_s3):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    fresh_s3.setenv("AWS_ENDPOINT_URL", endpoint)
    fresh_s3.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(RunFolderError, match=f"s3://some-bucket/x.*{endpoint}"):
        RunFolder.create("s3://some-bucket/x", "")


def test_a_put_survives_a_server_that_is_overloaded_for_a_moment(fresh_s3):
    """The filesystem repeats it by itself; that is why the store does not."""
    answers, kept = [503, 500], []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # which answers clients that ask before they send

        def do_PUT(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop(0) if answers else 200
            if status == 200:
                kept.append(content)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        fresh_s3.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        fresh_s3.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        locate("s3://some-bucket/x").write([b"con", b"tent"])
        server.shutdown()
        thread.join()
    assert kept == [b"content"]
    assert answers == []
