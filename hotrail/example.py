"""The command that writes the files which the documentation reads."""

from pathlib import Path

import click

from hotrail.as_json import JSON, result


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@JSON
def example(folder: Path) -> None:
    """Writes small files to try the commands on into FOLDER.

    A log in several formats, a model and its parameters, as the documentation names them; default: the current folder.
    """
    from gen.data.example import FILES, write

    paths = write(folder)
    for path, (about, _) in zip(paths, FILES.values()):
        click.echo(f"{path}: {about}")
    result(files=paths)


COMMANDS = (example,)
