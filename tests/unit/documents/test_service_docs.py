"""The unit of systemd and the container of the documentation start what there is."""

import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import typer

from slackwater.cli import app
from slackwater.server.ingress.app import HEALTH
from slackwater.server.ingress.settings import PREFIX, read

PAGE = (Path(__file__).parents[3] / "docs/user/tasks/run_as_a_service.md").read_text()


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found.replace("\\\n", "")


def ingress_of(command):
    """How the ingress listens that `slackwater serve` with these arguments has."""
    program, name, *arguments = command
    assert (program, name) == ("/opt/slackwater/bin/slackwater", "serve")
    serve = typer.main.get_command(app).commands[name]
    given = serve.make_context(name, arguments).params
    assert given["location"] == "/var/lib/slackwater"
    settings = dict(pair.split("=", 1) for pair in given["conf"])
    below = {k.removeprefix(PREFIX): v for k, v in settings.items() if k.startswith(PREFIX)}
    return read(below)


def test_the_unit():
    unit = ConfigParser()
    unit.optionxform = str
    unit.read_string(block("ini"))
    service = unit["Service"]
    found = ingress_of(shlex.split(service["ExecStart"]))
    assert (found.port, found.url.partition(":")[0]) == (8443, "https")
    # SIGTERM goes to the application first, which ends the coordinator and says that it went well.
    assert (service["KillMode"], service["Restart"]) == ("mixed", "always")


def test_the_container():
    text = block("dockerfile")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    found = ingress_of(json.loads(entry))
    (port,) = re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE)
    assert found.port == int(port)
    (check,) = re.findall(r"^HEALTHCHECK CMD (\[.*\])$", text, re.MULTILINE)
    program, option, code = json.loads(check)
    assert (program, option) == ("/opt/slackwater/bin/python", "-c")
    assert f"http://127.0.0.1:{port}{HEALTH}" in code
    compile(code, "HEALTHCHECK", "exec")
