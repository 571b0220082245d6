"""What was synced and so must be there after the daemon was killed; the model is the plain directory.

A file that was synced is under its name with its content, and a directory that was synced has its entries. A change
that was made later and not synced may be there or not, so it weakens the promise:
- a file or directory that was moved is at one of its places, and directories on the way to it at one of theirs;
- a file that was written, or whose attributes were changed, is there with any content, or any attributes;
- a name over which another file was moved has the content of one of the two;
- a name that was removed, and names of a directory that were made, moved or removed, are not looked at.
"""

import os
import stat

import names_sides

PATHS_MAX = 300


def attributes_of(path, with_xattrs):
    seen = names_sides.Seen(os.lstat(path), False)
    was_set = abs(seen.mtime_ns - seen.ctime_ns) > names_sides.DAY_NS
    return [seen.facts["mode"], seen.facts["uid"], seen.facts["gid"], seen.mtime_ns if was_set and seen.kind == "f" else None,
            [list(pair) for pair in names_sides.xattrs(path)] if with_xattrs else []]


class Place:
    """A name that must lead to a file. Without contents any content is right, without attributes any."""

    def __init__(self, position, number, contents, attributes):
        self.positions, self.numbers = [position], {number}
        self.contents, self.attributes = contents, attributes
        # Whether the file that was synced here has been replaced.
        self.replaced = False


class Synced:
    """A directory that must have these entries, but for those changed since."""

    def __init__(self, entries, attributes):
        self.entries, self.attributes, self.changed = entries, attributes, set()


class Promises:
    """What one process was promised. A position is the number of a directory and a name in it."""

    def __init__(self, root, with_xattrs, is_own):
        self.root, self.with_xattrs, self.is_own = root, with_xattrs, is_own
        self.top = os.stat(root).st_ino
        self.places, self.synced = [], {}
        # Where a directory may be, the last is where it is. Those that were never moved are added when they are needed.
        self.directories = {}

    # Where things are now.
    def position(self, path):
        """The position of a path whose last component is not followed, or nothing."""
        parent, name = os.path.split(f"{self.root}/{path}".rstrip("/"))
        parent = os.path.realpath(parent)
        if name in (".", "..") or not os.path.isdir(parent):
            return None
        self.add_directories(os.path.relpath(parent, self.root))
        return os.stat(parent).st_ino, name

    def add_directories(self, path, anew=False):
        """All directories on the way are known; anew: they are where they are, since something below was synced."""
        number, at = self.top, self.root
        for name in [] if path == "." else path.split("/"):
            at = f"{at}/{name}"
            below = os.stat(at).st_ino
            if anew or below not in self.directories:
                self.directories[below] = [(number, name)]
            number = below

    @staticmethod
    def number(path, follow):
        try:
            return os.stat(path, follow_symlinks=follow).st_ino
        except OSError:
            return None

    @staticmethod
    def content_of(path):
        found = names_sides.Side("").run(["content", path.lstrip("/")])
        return {} if isinstance(found, str) else {"content": list(found)}

    # Operations. `look` is called before one, `changed` if it succeeded, or may have when the daemon died under it.
    def look(self, op, files):
        if op[0] == "as":
            return self.look(op[4], files)
        kind, facts = op[0], {}
        if kind in ("open", "truncate", "chmod", "chown", "utimens", "setxattr", "removexattr", "setacl"):
            path = op[2] if kind == "open" else op[1]
            follow = op[-1] if kind in ("chown", "utimens") else True
            facts["number"] = self.number(f"{self.root}/{path}", follow)
            if kind == "open":
                real = os.path.relpath(os.path.realpath(f"{self.root}/{path}"), self.root)
                facts["position"] = self.position(real) if not real.startswith("..") else None
        elif kind in ("mkdir", "mknod", "rmdir", "unlink", "in_removed"):
            facts["position"] = self.position(op[1])
            facts["number"] = self.number(f"{self.root}/{op[1]}", False)
        elif kind in ("symlink", "link", "link_open"):
            facts["position"] = self.position(op[2])
        elif kind == "rename":
            facts["from"], facts["to"] = self.position(op[1]), self.position(op[2])
            facts["moved"] = self.number(f"{self.root}/{op[1]}", False)
            facts["target"] = self.number(f"{self.root}/{op[2]}", False)
            facts |= self.content_of(f"{self.root}/{op[1]}")
        elif kind in ("at", "pwrite", "append", "ftruncate", "fallocate", "map_write", "copy_range", "reopen", "fchmod", "fchown"):
            slot = op[2] if kind in ("copy_range", "reopen") else op[1]
            if slot in files:
                facts["number"] = os.fstat(files[slot]).st_ino
                if kind == "at":
                    at = f"/proc/self/fd/{files[slot]}"
                    facts["from"], facts["to"] = (facts["number"], op[3]), (facts["number"], op[4])
                    if op[2] == "rename":
                        facts |= self.content_of(f"{at}/{op[3]}")
                    facts["moved"], facts["target"] = self.number(f"{at}/{op[3]}", False), self.number(f"{at}/{op[4]}", False)
        return facts

    def changed(self, op, facts):
        if op[0] == "as":
            self.changed(op[4], facts)
            return
        kind, number = op[0], facts.get("number")
        if kind == "open":
            if number is None and facts["position"]:
                self.name_changed(facts["position"])
            elif op[3] & os.O_TRUNC:
                self.data_changed(number)
        elif kind == "reopen":
            if op[3] & os.O_TRUNC:
                self.data_changed(number)
        elif kind in ("truncate", "pwrite", "append", "ftruncate", "fallocate", "map_write", "copy_range"):
            self.data_changed(number)
        elif kind in ("chmod", "chown", "utimens", "setxattr", "removexattr", "setacl", "fchmod", "fchown"):
            self.attributes_changed(number)
        elif kind in ("mkdir", "mknod", "symlink", "link", "link_open"):
            self.name_changed(facts["position"])
        elif kind in ("unlink", "rmdir", "in_removed"):
            self.removed(facts["position"], number)
        elif kind == "rename":
            self.renamed(op[3], facts)
        elif kind == "at":
            if op[2] in ("create", "mkdir"):
                self.name_changed(facts["from"])
            elif op[2] in ("unlink", "rmdir"):
                self.removed(facts["from"], facts["moved"])
            elif op[2] == "rename":
                self.renamed(0, facts)

    def data_changed(self, number):
        for place in self.places:
            if number in place.numbers:
                place.contents = place.attributes = None

    def attributes_changed(self, number):
        for place in self.places:
            if number in place.numbers:
                place.attributes = None
        if number in self.synced:
            self.synced[number].attributes = None

    def name_changed(self, position):
        if position and position[0] in self.synced:
            self.synced[position[0]].changed.add(position[1])

    def removed(self, position, number):
        self.name_changed(position)
        self.places = [place for place in self.places if place.positions[-1] != position]
        self.synced.pop(number, None)
        self.directories.pop(number, None)

    def renamed(self, flags, facts):
        old, new, moved, target = (facts[key] for key in ("from", "to", "moved", "target"))
        if moved == target or old is None or new is None:
            return
        self.name_changed(old)
        self.name_changed(new)
        coming = [place for place in self.places if place.positions[-1] == old]
        there = [place for place in self.places if place.positions[-1] == new]
        if moved in self.directories:
            self.directories[moved].append(new)
        if flags & names_sides.EXCHANGE:
            if target in self.directories:
                self.directories[target].append(old)
            for place in there:
                place.positions.append(old)
        else:
            if "content" not in facts:
                # No file, and a file that was there before.
                self.places = [place for place in self.places if place not in there]
                there = []
            for place in there:
                if place.contents is not None:
                    place.contents = place.contents + [facts["content"]]
                place.numbers.add(moved)
                place.attributes, place.replaced = None, True
            self.synced.pop(target, None)
            self.directories.pop(target, None)
        self.places = [place for place in self.places if not (place in coming and place.replaced)]
        for place in coming:
            place.positions.append(new)

    # Promises.
    def file_synced(self, fd):
        """A file that is open was synced: all its names lead to it, with what it has now."""
        number = os.fstat(fd).st_ino
        for path in self.names_of(number, os.fstat(fd).st_nlink, os.readlink(f"/proc/self/fd/{fd}")):
            self.add_place(path, number)

    def add_place(self, path, number):
        position = self.position(path)
        self.add_directories(os.path.relpath(os.path.dirname(f"{self.root}/{path}"), self.root), anew=True)
        self.places = [place for place in self.places if place.positions[-1] != position]
        found = names_sides.Side(self.root).run(["content", path])
        self.places.append(Place(position, number, [list(found)], attributes_of(f"{self.root}/{path}", self.with_xattrs)))
        if position[0] in self.synced:
            # It was made or moved here since the directory was synced, and is there now.
            self.synced[position[0]].entries[position[1]] = "f"
            self.synced[position[0]].changed.discard(position[1])

    def names_of(self, number, links, path):
        if links == 0:
            return []
        if links == 1 and not path.endswith(" (deleted)") and path.startswith(f"{self.root}/"):
            return [os.path.relpath(path, self.root)]
        return [path for path in self.own_files() if os.lstat(f"{self.root}/{path}").st_ino == number]

    def own_directories(self):
        """Paths, and the names of files in each; what other processes have is left out, since it changes."""
        for directory, below, files in os.walk(self.root):
            inside = os.path.relpath(directory, self.root)
            below[:] = [name for name in below if self.is_own(os.path.normpath(f"{inside}/{name}"))]
            yield inside, [path for path in (os.path.normpath(f"{inside}/{name}") for name in files) if self.is_own(path)]

    def own_files(self):
        return [path for _, files in self.own_directories() for path in files]

    def directory_synced(self, path):
        path = os.path.relpath(os.path.realpath(f"{self.root}/{path}"), self.root)
        self.add_directories(path, anew=True)
        number = os.stat(f"{self.root}/{path}").st_ino
        with os.scandir(f"{self.root}/{path}") as found:
            entries = {entry.name: names_sides.kind_of_direntry(entry) for entry in found
                       if self.is_own(os.path.normpath(f"{path}/{entry.name}"))}
        self.synced[number] = Synced(entries, attributes_of(f"{self.root}/{path}", self.with_xattrs))
        # Directories in it cannot be elsewhere.
        for name, kind in entries.items():
            if kind == "d":
                self.directories[os.stat(f"{self.root}/{path}/{name}").st_ino] = [(number, name)]

    def all_synced(self):
        for directory, files in list(self.own_directories()):
            if directory != ".":
                self.directory_synced(directory)
            for path in files:
                found = os.lstat(f"{self.root}/{path}")
                if stat.S_ISREG(found.st_mode):
                    self.add_place(path, found.st_ino)

    # For `check`.
    def paths(self, number, inside=()):
        """Where a directory may be. Those that contained each other in turn do not do so at once."""
        if number == self.top:
            return [""]
        found = []
        # The last first: there may be too many.
        for parent, name in reversed(dict.fromkeys(self.directories.get(number, []))):
            if parent != number and parent not in inside:
                found += [f"{above}/{name}" if above else name for above in self.paths(parent, (*inside, number))]
        return found[:PATHS_MAX]

    def exported(self):
        places = []
        for place in self.places:
            at = [f"{above}/{name}" if above else name
                  for (number, name) in reversed(dict.fromkeys(place.positions)) for above in self.paths(number)]
            places.append({"paths": at[:PATHS_MAX], "contents": place.contents, "attributes": place.attributes})
        directories = []
        for number, synced in self.synced.items():
            directories.append({"paths": self.paths(number), "entries": synced.entries, "changed": sorted(synced.changed),
                                "attributes": synced.attributes})
        return {"places": places, "directories": directories}


def check(root, notes, with_xattrs, is_own, with_times):
    """Lines that say which promises were not kept. Without names in the log recovered data has the time of its last logged write."""
    broken = []
    for place in notes["places"]:
        found = [wrong_with_file(root, path, place, with_xattrs, with_times) for path in place["paths"]]
        if found and None not in found:
            broken.append("a synced file: " + "; ".join(f"{path!r} {wrong}" for path, wrong in zip(place["paths"], found)))
    for directory in notes["directories"]:
        found = [wrong_with_directory(root, path, directory, is_own) for path in directory["paths"]]
        if found and None not in found:
            broken.append("a synced directory: " + "; ".join(f"{path!r} {wrong}" for path, wrong in zip(directory["paths"], found)))
    return broken


def wrong_with_file(root, path, place, with_xattrs, with_times):
    side = names_sides.Side(root)
    found = side.run(["content", path])
    if isinstance(found, str):
        return found
    if place["contents"] is not None and list(found) not in [list(one) for one in place["contents"]]:
        return f"has {found[0]} bytes, {found[1]}, not one of {place['contents']}"
    if place["attributes"] is not None:
        here = attributes_of(f"{root}/{path}", with_xattrs)
        # Without a ctime of its own (sshfs) a home that has the time looks as if nobody had set it.
        here[3] = None if place["attributes"][3] is None else os.lstat(f"{root}/{path}").st_mtime_ns
        if not with_times:
            here[3] = place["attributes"][3]
        if here != place["attributes"]:
            return f"has mode, owner, group, time, attributes {here}, not {place['attributes']}"
    return None


def wrong_with_directory(root, path, directory, is_own):
    found = names_sides.Side(root).run(["list", path])
    if isinstance(found, str):
        return found
    here = {name: kind for name, kind in found if is_own(f"{path}/{name}")}
    wrong = []
    for name in sorted(here.keys() | directory["entries"].keys()):
        wanted = directory["entries"].get(name)
        if name not in directory["changed"] and here.get(name) != wanted:
            wrong.append(f"{name!r} is {here.get(name, 'missing')}, wanted {wanted or 'nothing'}")
    if not wrong and directory["attributes"] is not None:
        seen = names_sides.Seen(os.lstat(f"{root}/{path}"), False)
        attributes = [seen.facts["mode"], seen.facts["uid"], seen.facts["gid"]]
        if attributes != directory["attributes"][:3]:
            wrong.append(f"mode, owner, group {attributes}, not {directory['attributes'][:3]}")
    return ", ".join(wrong) or None
