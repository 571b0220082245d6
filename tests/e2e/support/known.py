"""Inodes that are merely known: made, looked at, and used again when nothing is held of them any more.

    known.py grow DIRECTORY COUNT            COUNT files, 1,000 in a directory; every third is not empty
    known.py look DIRECTORY                  lstat of everything; prints how many files there are
    known.py directories DIRECTORY COUNT     two programs that each make COUNT directories at once
    known.py use MOUNT SOURCE OUTSIDE [--local]
                                             renames, links, removals, then the inodes by what the kernel knows of them
"""

import argparse
import os
import subprocess
import sys

# Changes of attributes that come between: each needs the inode at home, so that the daemon holds others no more.
CROWD = 400


def grow(directory, count):
    for number in range(count):
        parent = f"{directory}/{number // 1000:04}"
        if number % 1000 == 0:
            os.makedirs(parent)
        with open(f"{parent}/file-{number}", "wb") as file:
            if number % 3 == 0:
                file.write(b"x")


def look(directory):
    files = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            os.lstat(f"{parent}/{name}")
            files += 1
    print(files)


def directories(directory, count):
    program = f"import os, sys\nfor n in range({count}): os.mkdir(f'{{sys.argv[1]}}/{{n}}')"
    makers = []
    for maker in range(2):
        parent = f"{directory}/maker-{maker}"
        os.mkdir(parent)
        makers.append(subprocess.Popen([sys.executable, "-c", program, parent]))
    for maker in makers:
        assert maker.wait() == 0, "a maker failed"
    for maker in range(2):
        assert len(os.listdir(f"{directory}/maker-{maker}")) == count


class Scene:
    def __init__(self, mount, source):
        self.mount, self.source = mount, source
        os.mkdir(f"{mount}/crowd")
        for number in range(CROWD):
            with open(f"{mount}/crowd/{number}", "wb"):
                pass

    def crowd(self):
        for number in range(CROWD):
            os.chmod(f"{self.mount}/crowd/{number}", 0o600)
        self.bring_home()

    def bring_home(self):
        subprocess.run([os.environ["WEIR"], "sync", self.mount], check=True)

    def mode_at_home(self, name):
        self.bring_home()
        return os.lstat(f"{self.source}/{name}").st_mode & 0o7777

    def write(self, name, content):
        with open(f"{self.mount}/{name}", "wb") as file:
            file.write(content)


def renamed_directories(scene):
    """What lies below a directory that was renamed is found by what the kernel has cached of it."""
    os.makedirs(f"{scene.mount}/a/b/c")
    scene.write("a/b/c/f", b"f")
    inner = os.open(f"{scene.mount}/a/b/c", os.O_PATH)
    file = os.open(f"{scene.mount}/a/b/c/f", os.O_PATH)
    scene.crowd()
    os.rename(f"{scene.mount}/a", f"{scene.mount}/z")
    os.mkdir(f"{scene.mount}/other")
    os.rename(f"{scene.mount}/z/b", f"{scene.mount}/other/bb")
    scene.crowd()
    os.chmod("f", 0o640, dir_fd=inner)
    assert scene.mode_at_home("other/bb/c/f") == 0o640
    scene.crowd()
    os.chmod(f"/proc/self/fd/{file}", 0o604)
    assert scene.mode_at_home("other/bb/c/f") == 0o604
    os.close(inner)
    os.close(file)


def exchanged_files(scene):
    """A file that takes another's name, twice."""
    for name in ("one", "two", "three"):
        scene.write(name, name.encode())
    scene.crowd()
    os.rename(f"{scene.mount}/one", f"{scene.mount}/two")
    os.rename(f"{scene.mount}/three", f"{scene.mount}/one")
    scene.crowd()
    os.chmod(f"{scene.mount}/two", 0o611)
    os.chmod(f"{scene.mount}/one", 0o622)
    assert (scene.mode_at_home("two"), scene.mode_at_home("one")) == (0o611, 0o622)
    for name, content in (("two", b"one"), ("one", b"three")):
        with open(f"{scene.mount}/{name}", "rb") as file:
            assert file.read() == content


def name_used_again(scene):
    """A name is removed and made again while its old file is open."""
    scene.write("again", b"old")
    with open(f"{scene.mount}/again", "rb") as old:
        os.unlink(f"{scene.mount}/again")
        scene.crowd()
        scene.write("again", b"newer")
        scene.crowd()
        assert os.fstat(old.fileno()).st_size == 3
        assert old.read() == b"old"
        assert os.stat(f"{scene.mount}/again").st_size == 5
    with open(f"{scene.mount}/again", "rb") as new:
        assert new.read() == b"newer"


def links(scene):
    """A file by its other name, when the one it was found by last is gone."""
    scene.write("first", b"linked")
    os.link(f"{scene.mount}/first", f"{scene.mount}/second")
    assert os.stat(f"{scene.mount}/first").st_ino == os.stat(f"{scene.mount}/second").st_ino
    scene.crowd()
    os.unlink(f"{scene.mount}/second")
    scene.crowd()
    os.chmod(f"{scene.mount}/first", 0o631)
    assert scene.mode_at_home("first") == 0o631
    with open(f"{scene.mount}/first", "rb") as file:
        assert file.read() == b"linked"


def nameless(scene):
    """What has no name any more answers for as long as somebody refers to it, as on ext4."""
    scene.write("gone", b"gone")
    scene.crowd()
    file = os.open(f"{scene.mount}/gone", os.O_PATH)
    os.unlink(f"{scene.mount}/gone")
    os.mkdir(f"{scene.mount}/gone-directory")
    directory = os.open(f"{scene.mount}/gone-directory", os.O_PATH)
    scene.crowd()
    os.rmdir(f"{scene.mount}/gone-directory")
    scene.crowd()
    os.chmod(f"/proc/self/fd/{file}", 0o600)
    status = os.fstat(file)
    assert (status.st_nlink, status.st_size, status.st_mode & 0o777) == (0, 4, 0o600), status
    assert os.fstat(directory).st_nlink == 0
    os.close(file)
    os.close(directory)


def links_in_source(scene, outside):
    """A directory replaced in SOURCE by a link that leads out: what is outside is not touched."""
    os.makedirs(f"{scene.mount}/trap/inner")
    scene.write("trap/inner/victim", b"mine")
    file = os.open(f"{scene.mount}/trap/inner/victim", os.O_PATH)
    os.makedirs(f"{outside}/inner")
    with open(f"{outside}/inner/victim", "wb") as victim:
        victim.write(b"not mine")
    os.chmod(f"{outside}/inner/victim", 0o600)
    scene.crowd()
    os.rename(f"{scene.source}/trap", f"{scene.source}/moved")
    os.symlink(outside, f"{scene.source}/trap")
    scene.crowd()
    try:
        os.chmod(f"/proc/self/fd/{file}", 0o666)
    except OSError as error:
        print(f"refused: {error.strerror}")
    assert os.lstat(f"{outside}/inner/victim").st_mode & 0o777 == 0o600, "a link was followed"
    os.close(file)


def use(mount, source, outside, local):
    scene = Scene(mount, source)
    renamed_directories(scene)
    exchanged_files(scene)
    name_used_again(scene)
    links_in_source(scene, outside)
    if local:
        links(scene)
        nameless(scene)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("grow", "directories"):
        command = commands.add_parser(name)
        command.add_argument("directory")
        command.add_argument("count", type=int)
    commands.add_parser("look").add_argument("directory")
    command = commands.add_parser("use")
    command.add_argument("mount")
    command.add_argument("source")
    command.add_argument("outside")
    command.add_argument("--local", action="store_true")
    arguments = vars(parser.parse_args())
    name = arguments.pop("command")
    {"grow": grow, "look": look, "directories": directories, "use": use}[name](**arguments)


main()
