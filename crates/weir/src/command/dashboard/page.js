// The page of 'weir dashboard': asks for all mounts each second and shows them.
//
// Owns what was seen while the page is open, the last five minutes. Text of mounts goes into text nodes and attributes alone,
// never into HTML. Elements are made once and then changed, so that the focus and what is unfolded stay.
"use strict";

const INTERVAL_MS = 1000;
const FIRST_MS = 200;
const TIMEOUT_MS = 5000;
const SAMPLES_MAX = 300;
// A chart is this wide at least, in samples.
const SAMPLES_MIN = 60;
const WIDTH = 300;
const PAGE_BYTES = 4096;
const SVG = "http://www.w3.org/2000/svg";

// ---- Text ----

function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (count >= 1024 && unit + 1 < units.length) { count /= 1024; unit += 1; }
    return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}
const perSecond = (count) => `${bytes(count)}/s`;
const pages = (count) => count * PAGE_BYTES;
const whole = (count) => Math.round(count).toLocaleString("en");

function duration(seconds) {
    if (seconds < 1e-6) return `${Math.round(seconds * 1e9)} ns`;
    if (seconds < 1e-3) return `${Number((seconds * 1e6).toPrecision(2))} µs`;
    if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(2))} ms`;
    if (seconds < 60) return `${seconds.toFixed(1)} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
    return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
}

// ---- Elements ----

// An element with attributes and children; text becomes a text node.
function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children);
    return made;
}

function drawn(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
}

// Changes text only where it is another one: screen readers announce changes.
function write(node, text) {
    if (node.textContent !== text) node.textContent = text;
}

// A list of pairs of a name and a value that changes.
function figures(names) {
    const values = new Map();
    const list = element("dl", { class: "figures" });
    for (const name of names) {
        const value = element("dd", {}, "–");
        values.set(name, value);
        list.append(element("div", {}, element("dt", {}, name), value));
    }
    return { list, set: (name, text) => write(values.get(name), text) };
}

// How much of something is in use.
function bar(name) {
    const progress = element("progress", { max: "1", value: "0", "aria-label": name });
    const text = element("span", {});
    const row = element("div", {}, element("dt", {}, name, text), element("dd", {}, progress));
    return {
        row,
        set(used, of) {
            row.hidden = !of;
            if (!of) return;
            progress.value = Math.min(1, used / of);
            const said = `${bytes(used)} of ${bytes(of)}`;
            progress.setAttribute("aria-valuetext", said);
            write(text, said);
        },
    };
}

// A table whose rows are known by their first cell.
function table(caption, heads) {
    const body = element("tbody");
    const rows = new Map();
    const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
    const shown = element("table", {}, element("caption", {}, caption), element("thead", {}, head), body);
    return {
        view: element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, shown),
        set(wanted) {
            const names = new Set(wanted.map((cells) => cells[0]));
            for (const [name, row] of rows) if (!names.has(name)) { row.remove(); rows.delete(name); }
            for (const [name, ...cells] of wanted) {
                if (!rows.has(name)) {
                    const row = element("tr", {}, element("th", { scope: "row" }, name), ...cells.map(() => element("td")));
                    rows.set(name, row);
                    body.append(row);
                }
                cells.forEach((text, index) => write(rows.get(name).children[index + 1], text));
            }
        },
    };
}

// Values over time, one line each. The arrow keys choose a time, as on a slider.
class Chart {
    constructor(title, names, text) {
        this.names = names;
        this.text = text;
        this.samples = [];
        this.chosen = null;
        this.lines = names.map((_, index) => drawn("polyline", { class: `s${index}` }));
        this.cursor = drawn("line", { class: "cursor", y1: "0", y2: "100", visibility: "hidden" });
        this.plot = drawn("svg", {
            class: "chart", viewBox: `0 0 ${WIDTH} 100`, preserveAspectRatio: "none", tabindex: "0", role: "slider",
            "aria-label": `${title}, seconds ago`, "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0",
        });
        this.plot.append(...this.lines, this.cursor);
        this.most = element("span", {});
        this.when = element("span", {});
        this.values = names.map(() => element("span", {}));
        const legend = names.map((name, index) => {
            const key = drawn("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
            key.append(drawn("line", { class: `s${index}`, x1: "0", x2: "26", y1: "4", y2: "4" }));
            return element("li", {}, key, `${name} `, this.values[index]);
        });
        this.view = element("div", { class: "panel" }, element("h3", {}, title),
            element("p", { class: "scale" }, this.most, this.when), this.plot, element("ul", { class: "legend" }, ...legend));
        this.plot.addEventListener("keydown", (event) => this.pressed(event));
        this.plot.addEventListener("pointermove", (event) => this.pointed(event));
        this.plot.addEventListener("pointerleave", () => this.choose(null));
        this.plot.addEventListener("blur", () => this.choose(null));
    }

    add(values) {
        this.samples.push(values);
        if (this.samples.length > SAMPLES_MAX) this.samples.shift();
        this.draw();
    }

    // Chooses a sample by how many there are after it; null is the last one, as it changes.
    choose(back) {
        this.chosen = back === null ? null : Math.max(0, Math.min(this.samples.length - 1, back));
        this.draw();
    }

    pressed(event) {
        const steps = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
        if (event.key in steps) this.choose((this.chosen ?? 0) + steps[event.key]);
        else if (event.key === "Home") this.choose(this.samples.length - 1);
        else if (event.key === "End") this.choose(0);
        else if (event.key === "Escape") this.choose(null);
        else return;
        event.preventDefault();
    }

    pointed(event) {
        const place = this.plot.getBoundingClientRect();
        this.choose(Math.round((place.right - event.clientX) / place.width * (this.span() - 1)));
    }

    // How many samples fit.
    span() {
        return Math.max(SAMPLES_MIN, this.samples.length);
    }

    // Where the sample is that has so many after it.
    place(back) {
        return (WIDTH * (1 - back / (this.span() - 1))).toFixed(1);
    }

    draw() {
        const { samples } = this;
        if (samples.length === 0) return;
        const most = Math.max(1, ...samples.flat());
        this.lines.forEach((line, index) => {
            const points = samples.map((values, at) =>
                `${this.place(samples.length - 1 - at)},${(98 - 95 * values[index] / most).toFixed(1)}`);
            line.setAttribute("points", points.join(" "));
        });
        const back = this.chosen ?? 0;
        const shown = samples[samples.length - 1 - back];
        const x = this.place(back);
        this.cursor.setAttribute("x1", x);
        this.cursor.setAttribute("x2", x);
        this.cursor.setAttribute("visibility", this.chosen === null ? "hidden" : "visible");
        write(this.most, `up to ${this.text(most)}`);
        const when = back === 0 ? "now" : `${back} s ago`;
        write(this.when, when);
        shown.forEach((value, index) => write(this.values[index], this.text(value)));
        const said = this.names.map((name, index) => `${name} ${this.text(shown[index])}`).join(", ");
        this.plot.setAttribute("aria-valuemax", String(samples.length - 1));
        this.plot.setAttribute("aria-valuenow", String(back));
        this.plot.setAttribute("aria-valuetext", `${when}: ${said}`);
    }
}

// ---- A mount ----

function bucketRows({ store, files, cache }) {
    const count = (name) => whole(store[name] ?? 0);
    const rows = [["requests", count("requests")], ["failed", count("failed")], ["sent", bytes(store.bytes_up ?? 0)],
        ["got", bytes(store.bytes_down ?? 0)], ["files to upload", whole(files.pending_nodes)],
        ["bytes to upload", bytes(files.pending_bytes)], ["changed by others", whole(files.conflicts)]];
    if (!cache) return rows;
    const looked = cache.hits + cache.misses;
    const found = looked > 0 ? `${(100 * cache.hits / looked).toFixed(1)} %` : "–";
    return [...rows, ["cache on disk", bytes(cache.bytes)], ["found in it", found], ["damaged in it", whole(cache.damaged)]];
}

let numbered = 0;

class MountView {
    constructor(mount) {
        this.id = `mount-${numbered += 1}`;
        this.last = null;
        this.about = element("p", { class: "about" });
        this.troubles = element("ul", { class: "troubles", "aria-label": "Troubles" });
        this.figures = figures(["Written", "Read", "Written home", "Dirty", "Oldest dirty", "Patched", "Names not home",
            "Writers waiting", "Fetches avoided", "Read hits"]);
        this.rates = new Chart("Rates", ["written", "read", "home"], perSecond);
        this.dirty = new Chart("Dirty memory and watermarks", ["dirty", "high", "low", "writers wait"], bytes);
        this.patches = new Chart("Patches", ["patch memory", "only in the log"], bytes);
        this.names = new Chart("Names not home", ["changes", "refused"], whole);
        this.memory = bar("Memory");
        this.patchMemory = bar("Patch memory");
        this.log = bar("Redo log");
        this.latency = table("Latency in the daemon", ["", "count", "half", "99 %", "99.9 %", "longest"]);
        this.errors = table("Errors", ["", "count"]);
        this.lane = table("Lane", ["", "count"]);
        this.bucket = table("Bucket", ["", "count"]);
        this.sessions = table("Sessions", ["process", "promises", "commits", "for output", "waits", "half", "99 %", "longest"]);
        this.requests = table("Requests of the kernel", ["kind", "count"]);
        const bars = element("dl", { class: "bars" }, this.memory.row, this.patchMemory.row, this.log.row);
        const panel = (...children) => element("div", { class: "panel" }, ...children);
        this.namesPanel = this.names.view;
        this.sessionsPanel = element("div", { class: "panel broad" }, this.sessions.view);
        this.lanePanel = panel(this.lane.view);
        this.bucketPanel = panel(this.bucket.view);
        this.title = element("h2", { id: this.id, tabindex: "-1" }, mount.mountpoint);
        this.content = element("div", {}, this.figures.list,
            element("div", { class: "panels" }, this.rates.view, this.dirty.view, this.patches.view, this.namesPanel,
                panel(element("h3", {}, "In use"), bars), panel(this.latency.view), this.bucketPanel,
                this.sessionsPanel),
            element("details", {}, element("summary", {}, "Errors, lane and requests"),
                element("div", { class: "panels" }, panel(this.errors.view), this.lanePanel, panel(this.requests.view))));
        this.view = element("section", { class: "mount", "aria-labelledby": this.id }, this.title, this.about, this.troubles,
            this.content);
        this.link = element("a", { href: `#${this.id}` }, mount.mountpoint);
    }

    show(mount) {
        const { status } = mount;
        this.content.hidden = !status;
        this.showTroubles(mount);
        if (!status) {
            write(this.about, `from ${mount.source}`);
            return;
        }
        const facts = [`from ${mount.source}`, `process ${status.pid}`, `up ${duration(status.uptime_ms / 1000)}`,
            `weir ${status.weir_version}`, status.transport === "io-uring" ? "FUSE over io_uring" : "FUSE over /dev/fuse",
            `fetch ${status.fetch_policy}`, `write-back ${status.write_back}`];
        if (status.order === "all") facts.push("everything in order");
        if (status.read_only) facts.push("read-only");
        write(this.about, facts.join(" · "));
        this.showNow(status);
        this.showTables(status);
        this.sample(status);
    }

    showTroubles({ status, trouble, ended }) {
        const found = [];
        const bad = (text) => found.push(["bad", text]);
        const note = (text) => found.push(["note", text]);
        if (trouble) bad(trouble);
        if (ended) note("unmounted: the daemon still brings things home");
        else if (status && status.stopping) note("the mount is being ended");
        if (status) {
            const { stats, names, bucket } = status;
            if (bucket && bucket.files.lease_lost) bad("another machine has the prefix: nothing is uploaded any more");
            if (stats.log_errors > 0) bad("the redo log failed");
            if (stats.destage_errors > 0) bad(`writing home failed ${whole(stats.destage_errors)} times`);
            if (stats.sync_errors > 0) bad(`syncing home failed ${whole(stats.sync_errors)} times`);
            if (stats.fetch_errors > 0) bad(`reading from home failed ${whole(stats.fetch_errors)} times`);
            if (stats.log_read_errors > 0) bad(`reading the redo log failed ${whole(stats.log_read_errors)} times`);
            if (names && names.refused > 0) {
                bad(`SOURCE refuses ${whole(names.refused)} changes of names: ${names.refused_paths.join(", ")}`);
            }
            if (names && names.conflicts > 0) {
                note(`${whole(names.conflicts)} names were changed in SOURCE by others: ${names.conflict_paths.join(", ")}`);
            }
            if (stats.writers_waiting > 0) note(`${whole(stats.writers_waiting)} writers wait for memory or a page`);
        }
        const same = this.troubles.children.length === found.length
            && found.every(([, text], index) => this.troubles.children[index].textContent === text);
        if (!same) this.troubles.replaceChildren(...found.map(([kind, text]) => element("li", { class: kind }, text)));
        this.troubles.hidden = found.length === 0;
    }

    showNow({ stats, names }) {
        this.figures.set("Dirty", bytes(pages(stats.dirty_pages)));
        this.figures.set("Oldest dirty", stats.dirty_pages > 0 ? duration(stats.oldest_dirty_ms / 1000) : "–");
        this.figures.set("Patched", bytes(pages(stats.patched_pages)));
        this.figures.set("Names not home", names ? whole(names.pending) : "–");
        this.figures.set("Writers waiting", whole(stats.writers_waiting));
        this.figures.set("Fetches avoided", bytes(pages(stats.fetches_avoided)));
        const looked = stats.read_hits + stats.read_misses;
        this.figures.set("Read hits", looked > 0 ? `${(100 * stats.read_hits / looked).toFixed(1)} %` : "–");
        this.memory.set(stats.memory_bytes, stats.memory_bytes_max);
        this.patchMemory.set(stats.patch_bytes, stats.patch_bytes_max);
        this.log.set(stats.log_used_bytes, stats.log_capacity_bytes);
    }

    showTables({ stats, latency, sessions, lane, bucket, requests, notifications }) {
        const nanos = (of, value) => of.count > 0 ? duration(value / 1e9) : "–";
        this.latency.set(["write", "read", "sync"].map((kind) => {
            const of = latency[kind];
            return [kind, whole(of.count), nanos(of, of.p50_ns), nanos(of, of.p99_ns), nanos(of, of.p999_ns),
                nanos(of, of.max_ns)];
        }));
        this.errors.set([["reading from home", whole(stats.fetch_errors)], ["writing home", whole(stats.destage_errors)],
            ["syncing home", whole(stats.sync_errors)], ["writing the log", whole(stats.log_errors)],
            ["reading the log", whole(stats.log_read_errors)]]);
        this.lanePanel.hidden = !lane;
        if (lane) {
            this.lane.set([["programs", whole(lane.clients)], ["files", whole(lane.files)],
                ["writes posted", whole(lane.posted_writes)], ["bytes posted", bytes(lane.posted_bytes)],
                ["leases granted", whole(lane.granted)], ["leases revoked", whole(lane.revoked)],
                ["leases refused", whole(lane.refused)]]);
        }
        this.bucketPanel.hidden = !bucket;
        if (bucket) this.bucket.set(bucketRows(bucket));
        this.sessionsPanel.hidden = sessions.length === 0;
        this.sessions.set(sessions.map((session) => {
            const { commits, waits } = session;
            const all = Object.values(commits).reduce((sum, count) => sum + count, 0);
            const wait = (us) => waits.count > 0 ? duration(us / 1e6) : "–";
            const promises = `${whole(session.promises)}${session.pending ? ", not all durable" : ""}`;
            return [String(session.supervisor), promises, whole(all), whole(commits.for_output), whole(waits.count),
                wait(waits.p50_us), wait(waits.p99_us), wait(waits.max_us)];
        }));
        const kinds = Object.entries(requests).sort(([, one], [, other]) => other - one);
        this.requests.set([...kinds.map(([kind, count]) => [kind, whole(count)]), ["notifications", whole(notifications)]]);
    }

    // Adds to the charts what happened since the last status, by the daemon's clock.
    sample(status) {
        const { stats, names, pid, uptime_ms: uptime } = status;
        const last = this.last;
        if (last && last.pid === pid && last.uptime_ms === uptime) return;
        this.last = status;
        this.dirty.add([pages(stats.dirty_memory_pages), pages(stats.watermark_high_pages), pages(stats.watermark_low_pages),
            pages(stats.dirty_bound_pages)]);
        this.patches.add([stats.patch_bytes, pages(stats.spilled_pages)]);
        this.namesPanel.hidden = !names;
        if (names) this.names.add([names.pending, names.refused]);
        if (!last || last.pid !== pid || last.uptime_ms > uptime) return;
        const seconds = (uptime - last.uptime_ms) / 1000;
        const rate = (name) => Math.max(0, stats[name] - last.stats[name]) / seconds;
        const rates = [rate("write_bytes"), rate("read_bytes"), rate("destage_bytes")];
        this.rates.add(rates);
        this.figures.set("Written", perSecond(rates[0]));
        this.figures.set("Read", perSecond(rates[1]));
        this.figures.set("Written home", perSecond(rates[2]));
    }
}

// ---- All of them ----

const state = document.getElementById("state");
const main = document.getElementById("mounts");
const index = document.getElementById("index");
const pause = document.getElementById("pause");
const empty = element("p", { class: "notice" }, "No weir mounts.");
const views = new Map();
let paused = false;
main.replaceChildren();

function show(page) {
    const title = page.host ? `Weir on ${page.host}` : "Weir";
    if (document.title !== title) document.title = title;
    write(document.getElementById("host"), page.host ? `on ${page.host}` : "");
    const mountOf = new Map(page.mounts.map((mount) => [JSON.stringify([mount.mountpoint, mount.source, mount.ended]), mount]));
    empty.remove();
    // First: what is left is then in its place.
    for (const [key, view] of views) {
        if (!mountOf.has(key)) { view.view.remove(); view.link.remove(); views.delete(key); }
    }
    [...mountOf].forEach(([key, mount], place) => {
        if (!views.has(key)) views.set(key, new MountView(mount));
        const view = views.get(key);
        view.show(mount);
        // Only what is not in its place is moved: moving takes the focus away.
        if (main.children[place] !== view.view) main.insertBefore(view.view, main.children[place] || null);
        if (index.children[place] !== view.link) index.insertBefore(view.link, index.children[place] || null);
    });
    if (views.size === 0 && page.rounds > 1) main.append(empty);
    index.hidden = views.size < 2;
    const count = views.size === 1 ? "1 mount" : `${views.size} mounts`;
    say(page.trouble || `${count}, each second`, Boolean(page.trouble));
}

function say(text, lost) {
    write(state, text);
    state.classList.toggle("lost", lost);
    main.classList.toggle("stale", lost);
}

async function follow() {
    let next = INTERVAL_MS;
    if (!paused) {
        try {
            const answer = await fetch("/api/mounts", { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
            if (!answer.ok) throw new Error(`status ${answer.status}`);
            const page = await answer.json();
            if (!paused) show(page);
            // The first answer only begins the asking.
            if (page.rounds < 2) next = FIRST_MS;
        } catch (error) {
            say(`'weir dashboard' does not answer (${error.message}): trying again`, true);
        }
    }
    setTimeout(follow, next);
}

pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) write(state, "Paused");
});

follow();
