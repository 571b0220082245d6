#!/usr/bin/env python3
"""Looks at the page of 'weir dashboard' in a headless Chromium.

    dashboard.py look WEIR URL DIRECTORY PICTURES MOUNTPOINT OTHER PID
        At two widths, light and dark: it fits, is readable, shows the status when process PID, which writes, has been ended,
        obeys the keyboard, and has names for assistive programs.
    dashboard.py follow WEIR URL DIRECTORY SOURCE MOUNTPOINT KEPT
        Mounts come and go, stop and die; KEPT goes on.
    dashboard.py reconnect URL DIRECTORY PID COMMAND...
        The command, process PID, ends and is there again.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

from browser import Browser

SIZES = {"wide": (1280, 900), "phone": (390, 844)}
# Of a mount's section, by its title.
SECTION = """(title => [...document.querySelectorAll('section.mount')]
    .find(section => section.querySelector('h2').textContent === title))"""


def status(weir, mountpoint):
    return json.loads(subprocess.run([weir, "status", "--json", mountpoint], check=True, capture_output=True).stdout)


def section(mountpoint):
    return f"{SECTION}({json.dumps(mountpoint)})"


def cell(mountpoint, caption, row, column):
    """The text of a table's cell."""
    return f"""(() => {{
        const table = [...{section(mountpoint)}.querySelectorAll('table')].find(one => one.caption.textContent === {json.dumps(caption)});
        const row = [...table.tBodies[0].rows].find(one => one.cells[0].textContent === {json.dumps(row)});
        return row && row.cells[{column}].textContent;
    }})()"""


def figure(mountpoint, name):
    return f"""[...{section(mountpoint)}.querySelectorAll('.figures dt')].find(one => one.textContent === {json.dumps(name)})
        .nextElementSibling.textContent"""


def charts(mountpoint, least):
    """Whether all charts that are shown have that many samples."""
    return f"""{section(mountpoint)} && [...{section(mountpoint)}.querySelectorAll('svg.chart')]
        .filter(chart => !chart.closest('[hidden]')).every(chart => Number(chart.getAttribute('aria-valuemax')) >= {least})"""


def text_of_bytes(count):
    for unit in "B", "KiB", "MiB", "GiB":
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024


def luminance(colour):
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def shows_the_status(page, weir, mountpoint):
    now = status(weir, mountpoint)
    for _ in range(50):
        before = now
        page.wait("true")
        time.sleep(1.2)
        shown = {
            "writes": page.evaluate(cell(mountpoint, "Latency in the daemon", "write", 1)),
            "syncs": page.evaluate(cell(mountpoint, "Latency in the daemon", "sync", 1)),
            "lookups": page.evaluate(cell(mountpoint, "Requests of the kernel", "lookup", 1)),
            "posted": page.evaluate(cell(mountpoint, "Lane", "writes posted", 1)),
            "errors": page.evaluate(cell(mountpoint, "Errors", "writing home", 1)),
            "promises": page.evaluate(cell(mountpoint, "Sessions", str(before["sessions"][0]["supervisor"]), 1)),
            "dirty": page.evaluate(figure(mountpoint, "Dirty")),
            "names": page.evaluate(figure(mountpoint, "Names not home")),
            "pid": f"process {before['pid']}" in page.evaluate(f"{section(mountpoint)}.querySelector('.about').textContent"),
        }
        now = status(weir, mountpoint)
        wanted = {
            "writes": f"{now['latency']['write']['count']:,}",
            "syncs": f"{now['latency']['sync']['count']:,}",
            "lookups": f"{now['requests']['lookup']:,}",
            "posted": f"{now['lane']['posted_writes']:,}",
            "errors": f"{now['stats']['destage_errors']:,}",
            "promises": f"{now['sessions'][0]['promises']:,}",
            "dirty": text_of_bytes(now["stats"]["dirty_pages"] * 4096),
            "names": f"{now['names']['pending']:,}",
            "pid": True,
        }
        if shown == wanted:
            assert now["latency"]["write"]["count"] > 10, "nothing was written"
            return
    raise AssertionError(f"the page shows {shown}, and the status is {wanted}")


def fits(page, width):
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"the page is {wide} wide, and the screen {width}"
    small = page.evaluate("""[...document.querySelectorAll('button, summary')].filter(one => one.checkVisibility())
        .map(one => [one.textContent, one.getBoundingClientRect().height]).filter(([, height]) => height < 30)""")
    assert not small, f"too small for a finger: {small}"


def is_readable(page, dark):
    for what in "body", "h2", ".about", ".figures dt", ".figures dd", "td", "thead th", "nav a", "button", ".scale", "footer p":
        colours = page.evaluate(f"""(() => {{
            const one = document.querySelector({json.dumps(what)});
            let ground = one;
            while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
            return [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor];
        }})()""")
        assert contrast(*colours) >= 4.5, f"{what}: {colours} are too alike"
        assert (luminance(colours[1]) < 0.2) == dark, f"{what}: the ground is {colours[1]}, dark is {dark}"


def has_names(page):
    nodes = page.accessible()
    needed = {"button", "link", "slider", "table", "progressbar", "progressindicator", "ProgressIndicator", "region", "navigation", "heading"}
    nameless = [role for role, name in nodes if role in needed and not name.strip()]
    assert not nameless, f"without a name: {nameless}"
    roles = {role for role, _ in nodes}
    for role in "button", "slider", "table", "region", "navigation", "main", "heading":
        assert role in roles, f"no {role} is there: {sorted(map(str, roles))}"


def obeys_the_keyboard(page, mountpoint):
    focused = "document.activeElement"
    seen = []
    for _ in range(60):
        page.press("Tab")
        seen.append(page.evaluate(f"{focused}.id || {focused}.getAttribute('aria-label') || {focused}.textContent"))
        if page.evaluate(f"{focused}.tagName") == "SUMMARY":
            break
    assert seen[0] == "Skip to the mounts", seen
    assert "pause" in seen and any("watermarks" in one for one in seen), seen
    page.press("Enter")
    page.wait(f"{focused}.parentElement.open")
    page.evaluate("document.getElementById('pause').focus()")
    page.press("Enter")
    page.wait("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
    page.wait("document.getElementById('state').textContent === 'Paused'")
    chart = f"{section(mountpoint)}.querySelector('svg.chart')"
    page.evaluate(f"{chart}.focus()")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    page.wait(f"{chart}.getAttribute('aria-valuenow') === '2'")
    said = page.evaluate(f"{chart}.getAttribute('aria-valuetext')")
    assert re.fullmatch(r"2 s ago: written [\d.]+ \w+/s, read .*/s, home .*/s", said), said
    page.press("Home")
    page.wait(f"{chart}.getAttribute('aria-valuenow') === {chart}.getAttribute('aria-valuemax')")
    page.press("Escape")
    page.wait(f"{chart}.getAttribute('aria-valuenow') === '0'")
    page.evaluate("document.getElementById('pause').focus()")
    page.press("Enter")
    page.wait("document.getElementById('state').textContent.includes('each second')")


def look(weir, url, directory, pictures, mountpoint, other, load):
    with Browser(directory) as browser:
        pages = []
        for width, size in SIZES.items():
            for dark in False, True:
                page = browser.page(*size, dark=dark)
                page.open(url)
                pages.append((width, dark, page))
        first = pages[0][2]
        first.wait(section(mountpoint))
        # Nothing of a mount's name is HTML.
        assert first.evaluate("document.querySelectorAll('img, script:not([src]), b').length") == 0
        first.wait(section(other))
        assert first.evaluate("document.title").startswith("Weir"), first.evaluate("document.title")
        for width, dark, page in pages:
            page.wait(charts(mountpoint, 20), 60)
            scheme = "dark" if dark else "light"
            page.picture(f"{pictures}/dashboard-{width}-{scheme}.png", height=1700 if width == "phone" else None)
            fits(page, SIZES[width][0])
            is_readable(page, dark)
        os.kill(int(load), signal.SIGTERM)
        shows_the_status(first, weir, mountpoint)
        obeys_the_keyboard(first, mountpoint)
        has_names(first)
        for width, dark, page in pages:
            assert not page.complaints, f"{width}, dark {dark}: {page.complaints}"
        print(f"{len(pages)} pages, {len(first.accessible())} accessible nodes")


def follow(weir, url, directory, source, mountpoint, kept):
    def run(*command):
        subprocess.run([weir, *command], check=True)

    with Browser(directory) as browser:
        page = browser.page(*SIZES["wide"])
        page.open(url)
        page.wait(section(kept))
        page.evaluate(f"{section(kept)}.querySelector('svg.chart').focus()")
        run("mount", source, mountpoint)
        link = f"[...document.querySelectorAll('nav a')].find(one => one.textContent === {json.dumps(mountpoint)})"
        page.wait(f"{section(mountpoint)} && {link}.hash === '#' + {section(mountpoint)}.querySelector('h2').id")
        pid = status(weir, mountpoint)["pid"]

        # A daemon that does not answer is said to, and the other mount goes on.
        os.kill(pid, signal.SIGSTOP)
        trouble = f"{section(mountpoint)}.querySelector('.troubles').textContent"
        page.wait(f"{trouble}.includes('not answer')")
        samples = f"Number({section(kept)}.querySelector('svg.chart').getAttribute('aria-valuemax'))"
        before = page.evaluate(samples)
        page.wait(f"{samples} >= {before + 3}")
        os.kill(pid, signal.SIGCONT)
        page.wait(f"{trouble} === ''")

        run("umount", mountpoint)
        page.wait(f"!{section(mountpoint)}")
        run("mount", source, mountpoint)
        page.wait(section(mountpoint))
        os.kill(status(weir, mountpoint)["pid"], signal.SIGKILL)
        page.wait(f"{trouble}.includes('has died')")
        subprocess.run(["umount", "-l", mountpoint], check=True)
        page.wait(f"!{section(mountpoint)}")
        # What had the focus has it still.
        assert page.evaluate("document.activeElement.classList.contains('chart')")
        assert not page.complaints, page.complaints


def reconnect(url, directory, pid, *command):
    with Browser(directory) as browser:
        page = browser.page(*SIZES["phone"])
        page.open(url)
        page.wait("document.getElementById('state').textContent.includes('each second')")
        os.kill(int(pid), signal.SIGKILL)
        page.wait("document.getElementById('state').textContent.includes('does not answer')")
        assert page.evaluate("document.getElementById('state').classList.contains('lost')")
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            page.wait("document.getElementById('state').textContent.includes('each second')")
        finally:
            again.kill()
            again.wait()


if __name__ == "__main__":
    {"look": look, "follow": follow, "reconnect": reconnect}[sys.argv[1]](*sys.argv[2:])
