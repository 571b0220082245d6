"""What SOURCE may have after a crash and recovery, for failed_log.py: a model of a tree, written from docs/SEMANTICS.md alone.

Everything that is made has a number, which SOURCE shows as its group (a symbolic link: as its target). A *slot* is a directory's number and
a name. The model has what each slot leads to, all that it has led to since the last successful sync of anything (a sync makes all earlier
changes of names durable), and for each file all its contents since it was synced itself.

`problems` compares a directory with that. Each problem begins with a letter:

    a  something synced is lost: a name, a file, a page, a size
    b  something is there that never was: bytes, or what a name leads to
    d  a name more than there may be, a conflict or lost+weir although nobody else changed SOURCE
    e  after a failed log: a name at which one followed the other leads to nothing, and what it led to is elsewhere or was an empty directory
"""

import os
import re
import stat

PAGE = 4096
# The group of number N is FIRST + N.
FIRST = 10000
CONFLICT = re.compile(r"(.*)\.weir-conflict-\d+")


def is_left_out(path):
    """Weir's own directory, and what libfuse keeps of removed files that are open."""
    return path == ".weir" or os.path.basename(path).startswith(".fuse_hidden")


def kind_of(mode):
    return {stat.S_IFDIR: "d", stat.S_IFREG: "f", stat.S_IFLNK: "l", stat.S_IFIFO: "p"}[stat.S_IFMT(mode)]


class Node:
    """A file, directory, symbolic link or FIFO."""

    def __init__(self, number, kind, mode, content=b"", links=0):
        self.number, self.kind = number, kind
        # Since the last sync of anything, the last one as it is now.
        self.modes, self.links = [mode], [links]
        # Since the file was synced.
        self.contents = [content]
        self.had_links = False

    def __str__(self):
        return f"{self.kind}{self.number}"


class Model:
    def __init__(self):
        self.nodes = {0: Node(0, "d", 0o755, links=1)}
        self.entries = {}
        # Of directories. The root has none.
        self.slots = {}
        # What slots have led to since the last sync, if that has changed; None is nothing.
        self.history = {}
        # Names by which nothing but names is changed: sshfs shows a file with two names as two.
        self.passive = set()
        # (slot, number): with which of the contents a file has taken another one's name.
        self.replaced = {}
        # Directories removed since the last sync.
        self.removed = set()

    def read(self, raw, new_number, told_apart):
        """Takes the tree of a directory as it is. Returns the paths that have no number yet, and their numbers."""
        inodes, unnumbered = {}, []
        pending = [("", 0)]
        while pending:
            inside, parent = pending.pop()
            for name in sorted(os.listdir(f"{raw}/{inside}")):
                path = os.path.join(inside, name)
                if is_left_out(path):
                    continue
                found = os.lstat(f"{raw}/{path}")
                number = inodes.get(found.st_ino)
                if number is None:
                    number = self.read_node(f"{raw}/{path}", found, new_number, path, unnumbered)
                    inodes[found.st_ino] = number
                elif not told_apart:
                    self.passive.add((parent, name))
                self.entries[(parent, name)] = number
                node = self.nodes[number]
                node.links[0] += 1
                node.had_links = node.links[0] > 1
                if node.kind == "d":
                    self.slots[number] = (parent, name)
                    pending.append((path, number))
        return unnumbered

    def read_node(self, path, found, new_number, relative, unnumbered):
        kind = kind_of(found.st_mode)
        number = number_of(path, found)
        if number is None or number in self.nodes:
            number = new_number()
            unnumbered.append((relative, number))
        content = b""
        if kind == "f":
            with open(path, "rb") as file:
                content = file.read()
        self.nodes[number] = Node(number, kind, stat.S_IMODE(found.st_mode), content)
        return number

    def path(self, slot):
        parts = [slot[1]]
        while slot[0] != 0:
            slot = self.slots[slot[0]]
            parts.insert(0, slot[1])
        return "/".join(parts)

    def directory_path(self, number):
        return self.path(self.slots[number]) if number else "."

    def is_inside(self, number, ancestor):
        while number not in (0, ancestor):
            number = self.slots[number][0]
        return number == ancestor

    # Changes.
    def set(self, slot, number):
        before = self.entries.get(slot)
        if before == number:
            return
        self.history.setdefault(slot, [before]).append(number)
        if number is None:
            del self.entries[slot]
        else:
            self.entries[slot] = number

    def count(self, number, difference):
        node = self.nodes[number]
        node.links.append(node.links[-1] + difference)
        node.had_links = node.had_links or node.links[-1] > 1

    def make(self, slot, number, kind, mode):
        self.nodes[number] = Node(number, kind, mode)
        if kind == "d":
            self.slots[number] = slot
        self.set(slot, number)
        self.count(number, 1)

    def link(self, number, slot):
        self.set(slot, number)
        self.count(number, 1)

    def remove(self, slot):
        number = self.entries[slot]
        self.set(slot, None)
        self.count(number, -1)
        self.passive.discard(slot)
        if self.nodes[number].kind == "d":
            self.removed.add(number)

    def rename(self, old, new):
        moved, target = self.entries[old], self.entries.get(new)
        if moved == target:
            return
        if target is not None:
            self.count(target, -1)
            if self.nodes[target].kind == "d":
                self.removed.add(target)
            elif self.nodes[moved].kind == "f" and old not in self.passive and self.nodes[target].links[0]:
                self.replaced[(new, moved)] = len(self.nodes[moved].contents) - 1
        self.set(old, None)
        self.set(new, moved)
        self.move_passive(old, new)
        if self.nodes[moved].kind == "d":
            self.slots[moved] = new

    def exchange(self, one, other):
        first, second = self.entries[one], self.entries[other]
        if first == second:
            return
        self.set(one, second)
        self.set(other, first)
        both = {one, other} & self.passive
        self.passive -= both
        self.passive |= {other if slot == one else one for slot in both}
        for number, slot in ((first, other), (second, one)):
            if self.nodes[number].kind == "d":
                self.slots[number] = slot

    def move_passive(self, old, new):
        self.passive.discard(new)
        if old in self.passive:
            self.passive.remove(old)
            self.passive.add(new)

    def chmod(self, number, mode):
        self.nodes[number].modes.append(mode)

    def write(self, number, offset, data):
        content = self.nodes[number].contents[-1]
        content = content.ljust(offset, b"\0")
        self.nodes[number].contents.append(content[:offset] + data + content[offset + len(data):])

    def truncate(self, number, size):
        content = self.nodes[number].contents[-1]
        self.nodes[number].contents.append(content[:size].ljust(size, b"\0"))

    # Promises.
    def names_synced(self):
        self.history, self.removed = {}, set()
        for node in self.nodes.values():
            node.links, node.modes = node.links[-1:], node.modes[-1:]

    def data_synced(self, number):
        node = self.nodes[number]
        node.contents = node.contents[-1:]
        self.replaced = {key: index for key, index in self.replaced.items() if key[1] != number}

    def all_synced(self):
        self.names_synced()
        for number in self.nodes:
            self.data_synced(number)

    # What is there after recovery.
    def problems(self, root, log_failed, names_alone=()):
        return Comparison(self, root, log_failed, names_alone).problems


def number_of(path, found):
    """The number that a file of SOURCE shows."""
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(path)
        return int(target[3:]) if re.fullmatch(r"to-\d+", target) else None
    return found.st_gid - FIRST if found.st_gid > FIRST else None


def is_mixed(page, wanted):
    """The log may be replayed over what home was given since it failed."""
    return all(byte in {one[at] for one in wanted} for at, byte in enumerate(page))


class Comparison:
    """Of a directory with a model; `problems` is what it finds."""

    def __init__(self, model, root, log_failed, names_alone):
        # Of the nodes `names_alone` only the names are compared.
        self.model, self.root, self.log_failed, self.names_alone = model, root, log_failed, names_alone
        self.problems = []
        # For each number the slots and the inodes that have it.
        self.names, self.inodes = {0: [None]}, {}
        self.seen = set()
        self.compare_directory("", 0)
        for slot in model.entries.keys() | model.history.keys():
            if slot not in self.seen and slot[0] in self.names and None not in self.allowed(slot):
                wanted = [model.nodes[number] for number in self.allowed(slot)]
                # What was there is elsewhere, or was an empty directory.
                is_kept = wanted[0].number in self.names or wanted[0].kind == "d"
                kind = "e" if log_failed and len(wanted) > 1 and is_kept else "a"
                self.problems.append(f"{kind}: {slot} is missing, wanted {' or '.join(map(str, wanted))}")
        for number, node in model.nodes.items():
            self.check_count(number, node)

    def allowed(self, slot):
        return self.model.history.get(slot, [self.model.entries.get(slot)])

    def compare_directory(self, inside, parent):
        for name in sorted(os.listdir(f"{self.root}/{inside}")):
            path = os.path.join(inside, name)
            if is_left_out(path):
                continue
            slot = (parent, name)
            self.seen.add(slot)
            found = os.lstat(f"{self.root}/{path}")
            number = self.identify(slot, path, found)
            if number is None:
                shown = number_of(f"{self.root}/{path}", found)
                self.problems.append(f"b: {path} {slot} is {kind_of(found.st_mode)}{shown}, size {found.st_size}, which nobody made there")
                continue
            if number not in self.allowed(slot):
                self.wrong_place(slot, path, number)
            self.names.setdefault(number, []).append(slot)
            if number in self.names_alone:
                continue
            if self.inodes.setdefault(number, found.st_ino) != found.st_ino:
                self.problems.append(f"d: {path} is {self.model.nodes[number]}, which is another inode by another name")
            self.compare_node(path, slot, number, found)

    def identify(self, slot, path, found):
        number, kind = number_of(f"{self.root}/{path}", found), kind_of(found.st_mode)
        if number in self.model.nodes and self.model.nodes[number].kind == kind:
            return number
        if number is not None:
            return None
        # What was not synced may lack its group, and a directory that was made again.
        for number in self.allowed(slot):
            if number is not None and self.model.nodes[number].kind == kind and (
                    self.model.nodes[number].links[0] == 0 or self.log_failed and number in self.model.removed):
                return number
        return None

    def wrong_place(self, slot, path, number):
        node, conflict = self.model.nodes[number], CONFLICT.fullmatch(slot[1])
        if conflict or slot[1].startswith("lost+weir"):
            # What is new may be in the way after the log has failed.
            if not (conflict and self.log_failed and node.links[0] == 0):
                self.problems.append(f"d: {path} {slot} is {node}, links {node.links}")
        else:
            wanted = ", ".join(str(one) if one is None else str(self.model.nodes[one]) for one in self.allowed(slot))
            self.problems.append(f"b: {path} {slot} is {node}, wanted {wanted}")

    def compare_node(self, path, slot, number, found):
        node = self.model.nodes[number]
        made_again = node.kind == "d" and self.log_failed and number in self.model.removed
        # A link has no mode. Set-group-ID depends on who changes the file.
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if node.kind != "l" and node.links[0] and not made_again and mode not in [one & 0o777 for one in node.modes]:
            self.problems.append(f"a: {path} is {node} with mode {mode:o}, wanted {', '.join(f'{one:o}' for one in node.modes)}")
        if node.kind == "d":
            self.compare_directory(path, number)
        elif node.kind == "f":
            self.compare_content(path, slot, node)

    def compare_content(self, path, slot, node):
        with open(f"{self.root}/{path}", "rb") as file:
            content = file.read()
        contents = node.contents
        index = self.model.replaced.get((slot, node.number), 0)
        if index and self.allowed(slot).count(node.number) == 1:
            contents = contents[index:]
        sizes = [len(one) for one in contents]
        if not min(sizes) <= len(content) <= max(sizes):
            kind = "a" if len(content) < min(sizes) else "b"
            self.problems.append(f"{kind}: {path} is {node} with {len(content)} bytes, wanted {min(sizes)} to {max(sizes)}")
        for offset in range(0, len(content), PAGE):
            page = content[offset:offset + PAGE]
            wanted = {one[offset:offset + PAGE].ljust(PAGE, b"\0") for one in contents}
            if page.ljust(PAGE, b"\0") not in wanted and not (self.log_failed and is_mixed(page, wanted)):
                ever = {one[offset:offset + PAGE].ljust(PAGE, b"\0") for one in node.contents}
                kind = "a" if page.ljust(PAGE, b"\0") in ever or not any(page) else "b"
                length = min(next((at for at in range(len(page)) if page[at] != one[at]), len(page)) for one in wanted)
                self.problems.append(f"{kind}: {path} is {node}, of {len(content)} bytes; its page at byte {offset} is none of the {len(wanted)} pages "
                                     f"that it may be (all zeros: {not any(page)}; the first {length} bytes are those of one of them)")

    def check_count(self, number, node):
        count = len(self.names.get(number, []))
        if count == 0 and min(node.links) > 0:
            self.problems.append(f"a: {node} has no name, links {node.links}")
        elif count < min(node.links):
            self.problems.append(f"a: {node} has {count} names {self.names[number]}, links {node.links}")
        elif count > max(node.links):
            self.problems.append(f"d: {node} has {count} names {self.names[number]}, links {node.links}")
