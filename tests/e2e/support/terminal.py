#!/usr/bin/env python3
"""A terminal for tests: runs a program in a pseudo-terminal, and keeps the screen that its output makes.

Terminal understands what full-screen programs by crossterm and shells write: letters of one or two columns, the cursor's
moves, colours and attributes, clearing, the second screen, hiding the cursor. A sequence that it does not know is an error, so
that no test passes by a screen that is wrong.

    terminal = Terminal(["bash", "--norc"], columns=80, rows=24)
    terminal.send("ls\\n")
    terminal.wait(lambda screen: "README" in screen.text())
    terminal.svg("the title")
"""

import fcntl
import html
import os
import pty
import select
import signal
import struct
import termios
import time
import unicodedata
from dataclasses import dataclass, replace

KEYS = {
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "f1": "\x1bOP", "f4": "\x1bOS", "f6": "\x1b[17~", "f10": "\x1b[21~", "esc": "\x1b", "enter": "\r",
    "ctrl-c": "\x03", "ctrl-l": "\x0c", "ctrl-z": "\x1a",
}
# A time that no step takes, on any machine.
PATIENCE_S = 30
# xterm's first eight colours and their bright forms, in the picture.
PALETTE = ["#1c1f24", "#e06c75", "#7fbf6a", "#d7b45a", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4",
           "#5c6370", "#ff7b85", "#98d982", "#f0cd72", "#82c3ff", "#dda0f0", "#7ad7e0", "#ffffff"]
BACKGROUND, FOREGROUND = "#1c1f24", "#c8ccd4"


@dataclass(frozen=True)
class Style:
    """How a cell looks: colours are numbers of the palette, `#rrggbb`, or None."""

    colour: object = None
    background: object = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False


class Screen:
    """A grid of cells, each a text and a style; a wide letter is followed by an empty text."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.style = Style()
        self.x = self.y = 0
        self.cursor_is_shown = True
        self.cells = self.blank()
        # What the first screen showed, while the second one is shown.
        self.first = None
        self.rest = ""

    def blank(self):
        return [[(" ", Style())] * self.columns for _ in range(self.rows)]

    def resize(self, columns, rows):
        def fit(cells, x, y):
            """Keeps the lines from the top, unless the cursor would be lost."""
            lost = max(0, y - rows + 1)
            lines = [(line + [(" ", Style())] * columns)[:columns] for line in cells[lost:lost + rows]]
            lines += [[(" ", Style())] * columns for _ in range(rows - len(lines))]
            return lines, min(x, columns - 1), y - lost
        self.columns, self.rows = columns, rows
        self.cells, self.x, self.y = fit(self.cells, self.x, self.y)
        if self.first:
            self.first = fit(*self.first)

    def leave_out(self, text):
        """Takes a text out of all lines; what is at the right of a line stays there."""
        for y, line in enumerate(self.cells):
            letters = "".join(letter or "\0" for letter, _ in line)
            while text in letters:
                at = letters.index(text)
                # What is at the right has two spaces before it.
                gap = letters.rfind("  ", at, len(letters.rstrip()))
                gap = gap if gap >= 0 else len(letters)
                blank = [(" ", Style())] * len(text)
                line = line[:at] + line[at + len(text):gap] + blank + line[gap:]
                letters = "".join(letter or "\0" for letter, _ in line)
            self.cells[y] = line

    def text(self):
        return "\n".join(self.lines())

    def lines(self):
        return ["".join(text for text, _ in line).rstrip() for line in self.cells]

    def styles(self):
        return {style for line in self.cells for text, style in line if text.strip() or style.background is not None}

    def feed(self, output):
        output = self.rest + output
        self.rest = ""
        at = 0
        while at < len(output):
            letter = output[at]
            if letter == "\x1b":
                end = self.sequence_end(output, at)
                if end is None:
                    self.rest = output[at:]
                    return
                self.sequence(output[at:end])
                at = end
                continue
            at += 1
            if letter == "\r":
                self.x = 0
            elif letter == "\n":
                self.line_feed()
            elif letter == "\b":
                self.x = max(0, self.x - 1)
            elif letter == "\t":
                self.x = min(self.columns - 1, self.x // 8 * 8 + 8)
            elif letter == "\x07":
                pass
            elif ord(letter) < 32:
                raise ValueError(f"control character {letter!r}")
            else:
                self.put(letter)

    @staticmethod
    def sequence_end(output, at):
        if at + 1 >= len(output):
            return None
        if output[at + 1] == "]":
            end = output.find("\x07", at)
            return end + 1 if end >= 0 else None
        if output[at + 1] != "[":
            return at + 2
        for end in range(at + 2, len(output)):
            if "@" <= output[end] <= "~":
                return end + 1
        return None

    def line_feed(self):
        if self.y + 1 < self.rows:
            self.y += 1
        else:
            self.cells = self.cells[1:] + [[(" ", Style())] * self.columns]

    def put(self, letter):
        if unicodedata.combining(letter):
            return
        width = 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if self.x + width > self.columns:
            self.x = 0
            self.line_feed()
        self.cells[self.y][self.x] = (letter, self.style)
        if width == 2:
            self.cells[self.y][self.x + 1] = ("", self.style)
        self.x += width

    def sequence(self, text):
        if text.startswith("\x1b]") or text in ("\x1b=", "\x1b>"):
            return
        if not text.startswith("\x1b["):
            raise ValueError(f"unknown sequence {text!r}")
        body, end = text[2:-1], text[-1]
        if body.startswith("?"):
            return self.mode(body[1:], end, text)
        numbers = [int(number or 0) for number in body.split(";")] if body else []
        first = numbers[0] if numbers else 0
        if end == "H":
            row, column = (numbers + [1, 1])[:2]
            self.y = min(max(row, 1), self.rows) - 1
            self.x = min(max(column, 1), self.columns) - 1
        elif end == "A":
            self.y = max(0, self.y - max(first, 1))
        elif end == "B":
            self.y = min(self.rows - 1, self.y + max(first, 1))
        elif end == "C":
            self.x = min(self.columns - 1, self.x + max(first, 1))
        elif end == "D":
            self.x = max(0, self.x - max(first, 1))
        elif end == "G":
            self.x = min(max(first, 1), self.columns) - 1
        elif end == "J" and first in (0, 2, 3):
            if first == 2:
                self.cells = self.blank()
            elif first == 0:
                self.cells[self.y][self.x:] = [(" ", Style())] * (self.columns - self.x)
                for row in range(self.y + 1, self.rows):
                    self.cells[row] = [(" ", Style())] * self.columns
        elif end == "K" and first == 0:
            self.cells[self.y][self.x:] = [(" ", Style())] * (self.columns - self.x)
        elif end == "K" and first == 2:
            self.cells[self.y] = [(" ", Style())] * self.columns
        elif end == "m":
            self.render(numbers or [0])
        else:
            raise ValueError(f"unknown sequence {text!r}")

    def mode(self, body, end, text):
        if body == "25":
            self.cursor_is_shown = end == "h"
        elif body == "1049" and end == "h":
            self.first = self.first or (self.cells, self.x, self.y)
            self.cells, self.x, self.y = self.blank(), 0, 0
        elif body == "1049" and end == "l":
            if self.first:
                (self.cells, self.x, self.y), self.first = self.first, None
        elif body not in ("1", "7", "12", "2004", "2026"):
            raise ValueError(f"unknown sequence {text!r}")

    def render(self, numbers):
        numbers = list(numbers)
        while numbers:
            number = numbers.pop(0)
            if number == 0:
                self.style = Style()
            elif number == 1:
                self.style = replace(self.style, bold=True)
            elif number == 2:
                self.style = replace(self.style, dim=True)
            elif number == 22:
                self.style = replace(self.style, bold=False, dim=False)
            elif number in (7, 27):
                self.style = replace(self.style, reverse=number == 7)
            elif number in (38, 48):
                kind = numbers.pop(0)
                if kind == 5:
                    colour = numbers.pop(0)
                else:
                    colour = "#%02x%02x%02x" % tuple(numbers.pop(0) for _ in range(3))
                self.set_colour(number == 38, colour)
            elif 30 <= number <= 37 or 40 <= number <= 47:
                self.set_colour(number < 40, number % 10)
            elif 90 <= number <= 97 or 100 <= number <= 107:
                self.set_colour(number < 100, number % 10 + 8)
            elif number in (39, 49):
                self.set_colour(number == 39, None)
            elif number not in (3, 4, 23, 24, 59):
                raise ValueError(f"unknown attribute {number}")

    def set_colour(self, is_text, colour):
        self.style = replace(self.style, **{"colour" if is_text else "background": colour})

    def svg(self, title):
        """The screen as a picture."""
        across, down, size = 8.4, 18, 14
        width, height = self.columns * across + 24, self.rows * down + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'role="img" aria-label="{html.escape(title)}">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{size}">',
        ]

        def shown(colour, otherwise):
            if colour is None:
                return otherwise
            return PALETTE[colour % 16] if isinstance(colour, int) else colour

        for y, line in enumerate(self.cells):
            x = 0
            while x < self.columns:
                text, style = line[x]
                end = x + 1
                # Letters of one style are one text; those that a font may draw in another width stand alone.
                while end < self.columns and line[end][1] == style and line[end][0].isascii() and text.isascii():
                    text += line[end][0]
                    end += 1
                front, back = shown(style.colour, FOREGROUND), shown(style.background, None)
                if style.reverse:
                    front, back = back or BACKGROUND, front
                left, top = 12 + x * across, 12 + y * down
                if back:
                    parts.append(f'<rect x="{left:.1f}" y="{top}" width="{(end - x) * across + 0.3:.1f}" '
                                 f'height="{down}" fill="{back}"/>')
                text = text.rstrip()
                if text:
                    # Spaces are kept in any viewer.
                    shown_text, end_of_text = html.escape(text).replace(" ", "\u00a0"), x + len(text)
                    if not text.isascii():
                        end_of_text = end
                    weight = ' font-weight="bold"' if style.bold else ""
                    faint = ' opacity="0.6"' if style.dim else ""
                    parts.append(f'<text x="{left:.1f}" y="{top + size}" textLength="{(end_of_text - x) * across:.1f}" '
                                 f'lengthAdjust="spacingAndGlyphs" fill="{front}"{weight}{faint}>'
                                 f"{shown_text}</text>")
                x = end
        return "\n".join(parts + ["</g>", "</svg>", ""])


class Terminal:
    """A program in a pseudo-terminal, the leader of a session of its own."""

    def __init__(self, command, columns=80, rows=24, environment=None):
        self.screen = Screen(columns, rows)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(environment or {})
            os.execvp(command[0], command)
        self.set_size(columns, rows)
        self.status = None
        self.pending = b""

    def set_size(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.screen.resize(columns, rows)
        self.set_size(columns, rows)

    def send(self, text):
        os.write(self.fd, text.encode())

    def press(self, *keys):
        for key in keys:
            self.send(KEYS.get(key, key))
            # A lone escape is told from the beginning of a key by what follows it.
            self.read(0.15 if key == "esc" else 0.02)

    def read(self, seconds):
        """Takes what the program writes within this time. Says whether the terminal is still there."""
        until = time.monotonic() + seconds
        while True:
            left = max(0, until - time.monotonic())
            if not select.select([self.fd], [], [], left)[0]:
                return True
            try:
                output = os.read(self.fd, 1 << 16)
            except OSError:
                return False
            if not output:
                return False
            output = self.pending + output
            # A letter may be cut in the middle.
            text = output.decode(errors="ignore")
            whole = len(output) if not output[-4:].decode(errors="replace").endswith("\ufffd") else len(text.encode())
            self.pending = output[whole:]
            self.screen.feed(text)

    def wait(self, what, until, seconds=PATIENCE_S):
        """Waits until the screen is as it is to be; else the screen is shown, and the test fails."""
        end = time.monotonic() + seconds
        while not until(self.screen):
            if not self.read(0.05) or time.monotonic() > end:
                if until(self.screen):
                    return
                raise SystemExit(f"not seen: {what}. The screen is:\n{self.screen.text()}")

    def wait_for(self, *texts, seconds=PATIENCE_S):
        self.wait(" and ".join(texts), lambda screen: all(text in screen.text() for text in texts), seconds)

    def wait_without(self, text, seconds=PATIENCE_S):
        self.wait(f"a screen without {text}", lambda screen: text not in screen.text(), seconds)

    def end(self):
        try:
            os.kill(self.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def self_test():
    screen = Screen(10, 3)
    screen.feed("ab\x1b[31;1mc\x1b[0m\x1b[2;3Hx\x1b[38;5;2my\x1b[")
    screen.feed("0m日\r\n1\r\n2\r\n3")
    assert screen.lines() == ["1", "2", "3"], screen.lines()
    screen.feed("\x1b[?1049h\x1b[1;1Hsecond\x1b[?25l")
    assert screen.lines()[0] == "second" and not screen.cursor_is_shown
    screen.resize(4, 2)
    assert screen.lines() == ["seco", ""], screen.lines()
    screen.feed("\x1b[?1049l\x1b[?25h")
    assert screen.lines() == ["2", "3"] and screen.cursor_is_shown, screen.lines()
    screen.feed("\x1b[41mz")
    assert Style(background=1) in screen.styles()
    screen = Screen(20, 1)
    screen.feed("a /x/b of /x/c   r s")
    screen.leave_out("/x")
    assert screen.lines() == ["a /b of /c       r s"], screen.lines()
    assert "<svg" in screen.svg("a & b")
    for wrong in ("\x1b[5X", "\x01", "\x1b[?77h"):
        try:
            screen.feed(wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong!r} was taken")


if __name__ == "__main__":
    self_test()
