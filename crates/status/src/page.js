(() => {
  const byId = (id) => document.getElementById(id);
  // Points of the charts: one a second, for 15 minutes.
  const KEEP = 900;
  const points = [];
  let before = null;
  let paused = null; // the time of the last point that is shown
  let cursor = null; // the time that the reader looks at

  const number = (value) => value === null ? "–" : value >= 1e6 ? (value / 1e6).toFixed(2) + " M" : value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
  const size = (value) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
    return (unit && value < 100 ? value.toFixed(1) : Math.round(value)) + " " + units[unit];
  };
  const time = (nanos) => nanos === null ? "–" : nanos < 1e6 ? Math.round(nanos / 1e3) + " µs" : nanos < 1e9 ? (nanos / 1e6).toFixed(nanos < 1e8 ? 1 : 0) + " ms" : (nanos / 1e9).toFixed(2) + " s";
  const percent = (value) => value.toFixed(value < 10 ? 1 : 0) + " %";
  const span = (seconds) => {
    const parts = [[86400, "d"], [3600, "h"], [60, "min"]];
    for (const [length, name] of parts) if (seconds >= length) return Math.floor(seconds / length) + " " + name;
    return Math.floor(seconds) + " s";
  };
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

  // What was counted between two reports.
  const fresh = (now, then) => {
    const old = new Map(then || []);
    return now.map(([bound, count]) => [bound, count - (old.get(bound) || 0)]).filter(([, count]) => count > 0);
  };
  const percentile = (buckets, share) => {
    const all = buckets.reduce((sum, [, count]) => sum + count, 0);
    let below = 0;
    for (const [bound, count] of buckets) {
      below += count;
      if (below >= all * share) return bound;
    }
    return null;
  };

  // Charts: a line has the key of a point, a colour, and a name. The first is drawn last, on top.
  const charts = [
    { id: "rate", name: "Requests per second", lines: [["rate", "--one"]], text: number, fill: true },
    { id: "errors", name: "Errors per second", lines: [["server", "--bad", "5xx"], ["client", "--warn", "4xx"], ["rejected", "--one", "rejected"]], text: number },
    { id: "latency", name: "Time in the server", lines: [["p50", "--one", "p50"], ["p99", "--two", "p99"]], text: time, log: true },
    { id: "bytes", name: "Bytes sent per second", lines: [["bytes", "--one"]], text: (value) => size(value) + "/s", fill: true },
    { id: "open", name: "Open connections", lines: [["open", "--one"]], text: number, fill: true },
    { id: "cpu", name: "CPU time, of one core", lines: [["cpu", "--one"]], text: percent, fill: true },
  ];
  for (const chart of charts) chart.canvas = byId(chart.id + "-chart");
  const range = () => Number(byId("range").value);
  const last = () => paused ?? points.at(-1)?.time ?? 0;
  const shown = () => points.filter((point) => point.time <= last() && point.time >= last() - range());
  const at = (time) => shown().reduce((best, point) => !best || Math.abs(point.time - time) < Math.abs(best.time - time) ? point : best, null);

  // The top of an axis: 1, 2 or 5 times a power of ten.
  const round = (max) => {
    if (!max) return 0;
    const power = 10 ** Math.floor(Math.log10(max));
    return [1, 2, 5, 10].map((factor) => factor * power).find((bound) => bound >= max) || max;
  };

  const draw = (chart) => {
    const canvas = chart.canvas;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const visible = shown();
    const all = visible.flatMap((point) => chart.lines.map(([key]) => point[key] || 0)).filter((value) => value > 0);
    // A logarithmic axis goes from a power of ten to another, so that p50 and p99 are both seen.
    const min = chart.log && all.length ? 10 ** Math.floor(Math.log10(Math.min(...all))) : 0;
    const max = chart.log && all.length ? Math.max(10 ** Math.ceil(Math.log10(Math.max(...all))), min * 10) : round(Math.max(...all, 0));
    const top = 18, bottom = height - 17, end = last();
    const x = (time) => width - 1 - (end - time) / range() * (width - 2);
    const share = (value) => !max ? 0 : min ? Math.log(Math.max(value, min) / min) / Math.log(max / min) : value / max;
    const y = (value) => bottom - share(value) * (bottom - top);
    paint.font = "12px system-ui, sans-serif";
    paint.fillStyle = colour("--dim");
    paint.textAlign = "right";
    if (max) paint.fillText(chart.text(max), width, 12);
    paint.textAlign = "left";
    paint.fillText(min ? chart.text(min) : "0", 0, bottom - 3);
    const steps = range() === 120 ? [120, 60, 0] : [900, 600, 300, 0];
    for (const seconds of steps) {
      paint.textAlign = seconds === steps[0] ? "left" : seconds ? "center" : "right";
      paint.fillText(seconds ? `−${seconds / 60} min` : "now", x(end - seconds), height - 3);
    }
    paint.strokeStyle = colour("--line");
    paint.beginPath();
    for (const line of [top + .5, Math.round((top + bottom) / 2) + .5, bottom + .5]) { paint.moveTo(0, line); paint.lineTo(width, line); }
    paint.stroke();
    for (const [key, line] of [...chart.lines].reverse()) {
      paint.strokeStyle = paint.fillStyle = colour(line);
      paint.lineWidth = 1.75;
      paint.lineJoin = "round";
      paint.beginPath();
      let previous = null;
      for (const point of visible) {
        if (point[key] === null) { previous = null; continue; }
        // No line across the time without a connection.
        if (previous && point.time - previous < 5) paint.lineTo(x(point.time), y(point[key]));
        else {
          // A single second is a short line.
          paint.moveTo(x(point.time) - 2, y(point[key]));
          paint.lineTo(x(point.time), y(point[key]));
        }
        previous = point.time;
      }
      paint.stroke();
      if (chart.fill && visible.length > 1) {
        paint.lineTo(x(visible.at(-1).time), bottom);
        paint.lineTo(x(visible[0].time), bottom);
        paint.globalAlpha = .12;
        paint.fill();
        paint.globalAlpha = 1;
      }
    }
    const looked = cursor !== null && at(cursor);
    if (looked) {
      paint.strokeStyle = colour("--fg");
      paint.lineWidth = 1;
      paint.beginPath();
      paint.moveTo(x(looked.time), top);
      paint.lineTo(x(looked.time), bottom);
      paint.stroke();
    }
  };

  // The values of a chart at a point, with their names if there are several.
  const values = (chart, point, named) => chart.lines.map(([key, , name]) => (named && name ? name + " " : "") + chart.text(point[key]));
  const describe = (chart) => {
    const point = cursor === null ? shown().at(-1) : at(cursor);
    const canvas = chart.canvas;
    if (!point) return;
    byId(chart.id).replaceChildren(...chart.lines.flatMap(([key, colour], at) => {
      const value = document.createElement("span");
      value.textContent = chart.text(point[key]);
      // A zero is nothing to look at.
      if (chart.lines.length > 1 && point[key]) value.className = colour.slice(2);
      return at ? [" · ", value] : [value];
    }), cursor === null ? "" : " at " + clock(point.time));
    const text = values(chart, point, true).join(", ");
    canvas.setAttribute("aria-valuetext", cursor === null ? text : `${clock(point.time)}: ${text}`);
    canvas.setAttribute("aria-valuemin", -range());
    canvas.setAttribute("aria-valuenow", Math.round(point.time - last()));
    // A name that changes under the reader would be read out each second.
    if (canvas === document.activeElement) return;
    const max = (key) => Math.max(...shown().map((point) => point[key] || 0));
    const highest = chart.lines.map(([key, , name]) => (name ? name + " " : "") + chart.text(max(key))).join(", ");
    canvas.setAttribute("aria-label", `${chart.name}, last ${byId("range").selectedOptions[0].text}: now ${text}; highest ${highest}`);
  };
  const redraw = () => {
    for (const chart of charts) {
      draw(chart);
      describe(chart);
    }
  };
  const look = (time) => { cursor = time; redraw(); };
  for (const { canvas } of charts) {
    // A slider through time.
    for (const [name, value] of [["role", "slider"], ["tabindex", "0"], ["aria-valuemax", "0"], ["aria-valuenow", "0"]]) canvas.setAttribute(name, value);
    canvas.addEventListener("pointermove", (event) => look(last() - range() * (1 - event.offsetX / canvas.clientWidth)));
    canvas.addEventListener("pointerleave", () => look(null));
    canvas.addEventListener("focus", () => look(last()));
    canvas.addEventListener("blur", () => look(null));
    canvas.addEventListener("keydown", (event) => {
      const all = shown();
      const here = all.indexOf(at(cursor ?? last()));
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -KEEP, End: KEEP };
      if (event.key === "Escape") look(null);
      else if (event.key in steps && all.length) look(all[Math.min(Math.max(here + steps[event.key], 0), all.length - 1)].time);
      else return;
      event.preventDefault();
    });
  }

  const facts = (id, rows) => {
    byId(id).replaceChildren(...rows.map(([name, value, bad]) => {
      const row = document.createElement("div"), term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = name;
      detail.textContent = value;
      if (bad) detail.className = "bad";
      row.append(term, detail);
      return row;
    }));
  };
  const table = (id, rows, none) => {
    const body = byId(id).tBodies[0];
    const cells = rows.map((row) => {
      const line = document.createElement("tr");
      for (const value of row) {
        const cell = line.insertCell();
        cell.textContent = value && value.bad !== undefined ? value.bad : value;
        if (value && value.bad) cell.className = "bad";
      }
      return line;
    });
    if (!cells.length) {
      const line = document.createElement("tr");
      const cell = line.insertCell();
      cell.colSpan = 9;
      cell.textContent = none;
      cells.push(line);
    }
    body.replaceChildren(...cells);
  };
  const bad = (count) => count ? { bad: number(count) } : "0";

  const sum = (pairs) => pairs.reduce((sum, [, count]) => sum + count, 0);
  const kind = (report, name) => (report.requests.status.find(([kind]) => kind === name) || [0, 0])[1];
  // Limits in a dry run reject nothing.
  const rejected = (report) => report.connections.rejected + report.limits.flatMap((of) => [of.concurrency, of.bandwidth, ...of.rates])
    .filter((limit) => limit && !limit.dry_run).reduce((sum, limit) => sum + limit.rejected + (limit.expired || 0), 0);

  // The processes whose counts are added up: the counts of others are no change of theirs.
  const processes = (report) => (report.replicas ? report.replicas.each : []).filter((of) => of.started !== null).map((of) => `${of.address} ${of.started}`).join();
  const upstreamState = (of) => {
    const since = of.last_failure ? `, ${clock(of.last_failure)}` : "";
    const reason = of.last_error ? `: ${of.last_error}${since}` : "";
    if (!of.is_available) return { bad: `not used${reason}` };
    return of.failing ? { bad: `failing${reason}` } : "available";
  };
  const about = (now) => {
    const up = `up ${span(now.server.time - now.server.started)}`;
    if (!now.replicas) return `${now.server.version}, process ${now.server.pid}, ${now.server.threads} ${now.server.threads === 1 ? "worker" : "workers"}, ${up}`;
    const { name, each, error } = now.replicas;
    return `${each.filter((of) => !of.error).length} of ${each.length} replicas of ${name} respond${error ? `; ${error}` : ""}`;
  };

  // The reports of the last minute, for rates of what only grows.
  const reports = [];

  const show = (now) => {
    const then = before && processes(before) === processes(now) ? before : now;
    before = now;
    if (then === now) reports.length = 0;
    reports.push(now);
    if (reports.length > 61) reports.shift();
    const oldest = reports[0];
    const minute = Math.max(now.server.time - oldest.server.time, 1e-3);
    // Per second, over the last minute; what is rare has its number within it.
    const lately = (of) => number(now === oldest ? 0 : Math.max(of(now) - of(oldest), 0) / minute) + "/s";
    const recent = (of) => now === oldest ? 0 : Math.max(of(now) - of(oldest), 0);
    const pairs = (of) => of(now).map(([name]) => [name, (report) => (of(report).find(([other]) => other === name) || [0, 0])[1]]);
    const seconds = Math.max(now.server.time - then.server.time, 1e-3);
    const rate = (value, old) => (now === then ? 0 : Math.max(value - (old || 0), 0) / seconds);
    const latency = fresh(now.requests.latency, then.requests.latency);
    const open = sum(now.connections.open);
    if (now !== then) {
      points.push({
        time: now.server.time, open,
        rate: rate(now.requests.total, then.requests.total),
        server: rate(kind(now, "5xx"), kind(then, "5xx")),
        client: rate(kind(now, "4xx"), kind(then, "4xx")),
        rejected: rate(rejected(now), rejected(then)),
        p50: percentile(latency, .5),
        p99: percentile(latency, .99),
        bytes: rate(now.requests.sent, then.requests.sent),
        cpu: rate(now.process.cpu, then.process.cpu) * 100,
      });
      if (points.length > KEEP) points.shift();
    }
    if (paused !== null) return;
    byId("about").textContent = about(now);
    byId("replicas").closest("section").hidden = !now.replicas;
    table("replicas", (now.replicas ? now.replicas.each : []).map((of) => [of.address, of.age === null ? "–" : of.age.toFixed(1) + " s", of.started === null ? "–" : span(now.server.time - of.started), number(of.requests), of.error ? { bad: of.error } : "responds"]), "The name has no servers.");
    const states = { head: "receiving a request", body: "receiving a body", send: "sending", handler: "in a handler", throttle: "throttled", streams: "with HTTP/2 requests", linger: "closing" };
    facts("connections", [["open", `${number(open)} of ${number(now.connections.max)}`], ...now.connections.open.filter(([, count]) => count).map(([state, count]) => ["· " + (states[state] || state), number(count)]), ["accepted", lately((of) => of.connections.accepted)], ["TLS handshakes", lately((of) => of.tls.full + of.tls.resumed)], ["· resumed", lately((of) => of.tls.resumed)], ...[["· failed", (of) => of.tls.failed + of.tls.late], ["closed for new ones", (of) => of.connections.evicted], ["rejected by address limit", (of) => of.connections.rejected]].filter(([name, of]) => name === "· failed" || of(now)).map(([name, of]) => [name, `${number(recent(of))}/min`, recent(of) > 0])]);
    facts("responses", [["since the start", number(now.requests.total)], ...pairs((of) => of.requests.status).map(([kind, of]) => [kind, lately(of), kind === "5xx" && recent(of) > 0]), ...pairs((of) => of.requests.method).map(([name, of]) => [name, lately(of)]), ...pairs((of) => of.requests.protocol).map(([name, of]) => [name, lately(of)])]);
    const lookups = now.cache.hits + now.cache.misses;
    facts("cache", [["hits", lookups ? (now.cache.hits / lookups * 100).toFixed(1) + " %" : "–"], ["hits by bytes", now.cache.hit_bytes + now.cache.miss_bytes ? (now.cache.hit_bytes / (now.cache.hit_bytes + now.cache.miss_bytes) * 100).toFixed(1) + " %" : "–"], ["files", number(now.cache.files)], ["memory", `${size(now.cache.bytes)} of ${size(now.cache.max_bytes)}`], ["descriptors", number(now.cache.descriptors)], ["admitted", lately((of) => of.cache.admitted)], ["not admitted", lately((of) => of.cache.rejected)], ...pairs((of) => of.cache.eviction).filter(([, of]) => of(now)).map(([reason, of]) => [`evicted: ${reason}`, lately(of)])]);
    const stored = now.responses, disk = stored.disk;
    byId("response-cache").closest("div").hidden = !stored.max_bytes;
    const lookedUp = sum(stored.requests.filter(([result]) => result !== "bypass")), found = sum(stored.requests.filter(([result]) => ["hit", "stale", "collapsed"].includes(result)));
    facts("response-cache", [["hits", lookedUp ? (found / lookedUp * 100).toFixed(1) + " %" : "–"], ...pairs((of) => of.responses.requests).filter(([, of]) => of(now)).map(([result, of]) => ["· " + result, lately(of)]), ["URLs", number(stored.urls)], ["memory", `${size(stored.bytes)} of ${size(stored.max_bytes)}`], ["stored", number(stored.stored)], ["not admitted", number(stored.rejected)], ["in flight", number(stored.in_flight)], ...[["evicted", stored.evicted], ["purged", stored.purged]].filter(([, count]) => count).map(([name, count]) => [name, number(count)]), ...(disk.max_bytes ? [["URLs on disk", number(disk.urls)], ["disk", `${size(disk.bytes)} of ${size(disk.max_bytes)}`], ["read from disk", number(disk.read)], ["written", number(disk.written)], ["not written", number(disk.rejected)], ["failed to write", number(disk.failed), disk.failed > 0], ...[["evicted from disk", disk.evicted], ["damaged files", disk.damaged]].filter(([, count]) => count).map(([name, count]) => [name, number(count)])] : [])]);
    facts("process", [["memory", size(now.process.resident)], ["· requests", `${size(now.process.held)} of ${size(now.process.held_limit)}`, now.process.held > now.process.held_limit], ["rejected for memory", number(now.process.rejected), now.process.rejected > 0], ["descriptors", `${number(now.process.descriptors)} of ${number(now.process.descriptor_limit)}`], ["CPU time", now.process.cpu.toFixed(1) + " s"], ["log lines lost", number(now.log_lines_lost), now.log_lines_lost > 0]]);
    const routes = now.routes.map((route) => {
      const none = { requests: 0, sent: 0, failed: 0, latency: [] };
      const of = (report) => report.routes.find((other) => other.site === route.site && other.route === route.route) || none;
      const old = of(then), past = now === oldest ? route : of(oldest);
      const took = now === then ? [] : fresh(route.latency, old.latency);
      return { route, rate: rate(route.requests, old.requests), failed: rate(route.failed, old.failed), recent: [route.failed - past.failed, route.requests - past.requests], sent: rate(route.sent, old.sent), p50: percentile(took, .5), p99: percentile(took, .99) };
    // By the last minute: an order by the last second would not hold still.
    }).sort((a, b) => b.recent[0] - a.recent[0] || b.recent[1] - a.recent[1] || b.route.requests - a.route.requests);
    table("routes", routes.map(({ route, rate, failed, sent, p50, p99 }) => [route.site || "(no site)", route.route || "(site)", bad(route.failed), failed ? { bad: number(failed) } : "0", number(rate), time(p99), time(p50), size(sent), number(route.requests)]), "No request yet.");
    // The name of the only site is left out where there is little room.
    byId("routes").classList.toggle("one-site", new Set(now.routes.map((route) => route.site)).size === 1);
    byId("upstreams").closest("section").hidden = !now.upstreams.length;
    table("upstreams", now.upstreams.map((upstream) => [upstream.name, upstreamState(upstream), `${upstream.site} ${upstream.route}`, number(upstream.in_flight), bad(upstream.waiting), number(upstream.requests), bad(upstream.failures)]), "");
    byId("object-stores").closest("section").hidden = !now.object_stores.length;
    table("object-stores", now.object_stores.map((of) => [of.name, of.is_available ? "responds" : { bad: "does not respond" }, number(of.gets), number(of.not_modified), number(of.lists), number(of.joined), size(of.bytes), bad(of.stale), bad(of.errors)]), "");
    byId("scripts").closest("section").hidden = !now.scripts.length;
    table("scripts", now.scripts.map((pool) => [pool.name, pool.kind, `${number(pool.processes)} of ${number(pool.max)}`, number(pool.busy), bad(pool.waiting), pool.longest ? `${time(pool.longest * 1e6)} ${pool.longest_script}` : "–"]), "");
    byId("components").closest("section").hidden = !now.components.length;
    table("components", now.components.map((of) => [of.name, of.kind, number(of.live), number(of.fresh), number(of.reused), bad(of.rejected), bad(sum(of.stops)), size(of.memory_peak), of.error ? { bad: of.error } : "–"]), "");
    const limits = now.limits.flatMap((of) => [
      of.concurrency && [bad(of.concurrency.rejected + of.concurrency.expired), of.concurrency.rule, `${number(of.concurrency.running)} running, ${number(of.concurrency.waiting)} waiting`, number(of.concurrency.served), number(of.concurrency.queued)],
      of.bandwidth && [bad(of.bandwidth.rejected), of.bandwidth.rule, `${number(of.bandwidth.sending)} sending`, size(of.bandwidth.sent), "–"],
      ...of.rates.map((rate) => [bad(rate.rejected), rate.rule, "–", number(rate.passed), "–"]),
    ].filter(Boolean).map((row) => [of.site, of.route, ...row]));
    byId("limits").closest("section").hidden = !limits.length;
    table("limits", limits, "");
    byId("certificates").closest("section").hidden = !now.certificates.length;
    const until = (when) => when === null ? "–" : when <= now.server.time ? "due" : "in " + span(when - now.server.time);
    table("certificates", now.certificates.map((of) => {
      const left = of.expires === null ? { bad: "none yet" } : of.expires <= now.server.time ? { bad: "expired" } : span(of.expires - now.server.time);
      const error = of.error && { bad: `${span(now.server.time - of.failed_at)} ago: ${of.error}${of.next_try === null ? "" : `; next try ${until(of.next_try)}`}` };
      return [of.site, of.names.join(", ") || of.file, left, until(of.renewal), bad(of.failures), error || "–"];
    }), "");
    const clients = now.clients.map((client) => {
      const old = then.clients.find((other) => other.address === client.address) || { requests: 0, sent: 0 };
      return { client, rate: rate(client.requests, old.requests), sent: rate(client.sent, old.sent) };
    }).sort((a, b) => b.rate - a.rate || b.client.requests - a.client.requests).slice(0, 12);
    table("clients", clients.map(({ client, rate, sent }) => [client.address, number(rate), size(sent), time(client.took / client.requests), time(client.slowest)]), "Clients are counted only while their figures are viewed.");
    redraw();
  };

  for (const element of document.querySelectorAll(".live")) element.hidden = false;
  const link = (state, text) => {
    const element = byId("link");
    element.dataset.state = state;
    element.hidden = false;
    // The same text again would be read out again.
    if (element.textContent !== text) element.textContent = text;
  };
  const pause = byId("pause"), letters = byId("letters");
  const toggle = () => {
    paused = paused === null ? last() : null;
    pause.setAttribute("aria-pressed", paused !== null);
    pause.textContent = paused === null ? "Pause" : "Paused";
    redraw();
  };
  pause.addEventListener("click", toggle);
  // The setting lasts if the browser keeps data for this site.
  const remembered = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("letter-keys", value);
      return localStorage.getItem("letter-keys");
    } catch { return null; }
  };
  letters.checked = remembered() !== "off";
  letters.addEventListener("change", () => remembered(letters.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (letters.checked && event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) toggle();
  });
  byId("range").addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  link("waiting", "connecting");
  const follow = () => {
    const source = new EventSource("events");
    source.onmessage = (event) => { link("live", "live"); show(JSON.parse(event.data)); };
    source.onerror = () => link("lost", "connection lost, trying again");
  };
  // The seconds before the page was opened. A sum of several servers has none.
  fetch("history").then((response) => response.ok ? response.json() : { keys: [], samples: [] }).then(({ keys, samples }) => {
    points.push(...samples.map((values) => Object.fromEntries(keys.map((key, at) => [key, values[at]]))));
  }).catch(() => {}).finally(follow);
})();
