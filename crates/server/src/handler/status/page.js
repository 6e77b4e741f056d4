(() => {
  const byId = (id) => document.getElementById(id);
  const KEEP = 120;
  const history = { rate: [], bytes: [], p50: [], p99: [], cpu: [] };
  let before = null;
  let paused = false;

  const number = (value) => (value >= 1e6 ? (value / 1e6).toFixed(2) + " M" : value >= 1e4 ? (value / 1e3).toFixed(1) + " k" : value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1));
  const size = (value) => {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
    return (unit && value < 100 ? value.toFixed(1) : Math.round(value)) + " " + units[unit];
  };
  const time = (nanos) => nanos === null ? "–" : nanos < 1e6 ? Math.round(nanos / 1e3) + " µs" : nanos < 1e9 ? (nanos / 1e6).toFixed(nanos < 1e8 ? 1 : 0) + " ms" : (nanos / 1e9).toFixed(2) + " s";
  const span = (seconds) => {
    const parts = [[86400, "d"], [3600, "h"], [60, "min"]];
    for (const [length, name] of parts) if (seconds >= length) return Math.floor(seconds / length) + " " + name;
    return Math.floor(seconds) + " s";
  };

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

  const draw = (id, lines, format) => {
    const canvas = byId(id);
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const most = Math.max(...lines.flatMap((line) => line.values.map((value) => value || 0)), 0);
    const top = 16;
    paint.font = "11px system-ui, sans-serif";
    paint.fillStyle = colour("--dim");
    paint.textAlign = "right";
    paint.fillText(most ? format(most) : "", width, 11);
    paint.strokeStyle = colour("--line");
    paint.beginPath();
    for (const y of [top + .5, (top + height) / 2, height - .5]) { paint.moveTo(0, y); paint.lineTo(width, y); }
    paint.stroke();
    for (const line of lines) {
      const x = (at) => width - (line.values.length - 1 - at) * width / (KEEP - 1);
      const y = (value) => height - 1 - (most ? value / most : 0) * (height - top - 2);
      paint.strokeStyle = paint.fillStyle = colour(line.colour);
      paint.lineWidth = 1.75;
      paint.lineJoin = "round";
      paint.beginPath();
      let pen = false;
      line.values.forEach((value, at) => {
        if (value === null) { pen = false; return; }
        if (pen) paint.lineTo(x(at), y(value)); else paint.moveTo(x(at), y(value));
        pen = true;
      });
      paint.stroke();
      if (line.fill && line.values.length > 1) {
        paint.lineTo(width, height);
        paint.lineTo(x(0), height);
        paint.globalAlpha = .12;
        paint.fill();
        paint.globalAlpha = 1;
      }
    }
  };
  const redraw = () => {
    draw("rate-chart", [{ values: history.rate, colour: "--one", fill: true }], number);
    draw("bytes-chart", [{ values: history.bytes, colour: "--one", fill: true }], size);
    draw("latency-chart", [{ values: history.p99, colour: "--two" }, { values: history.p50, colour: "--one" }], time);
    draw("cpu-chart", [{ values: history.cpu, colour: "--one", fill: true }], (value) => Math.round(value) + " %");
  };

  const facts = (id, rows) => {
    byId(id).replaceChildren(...rows.flatMap(([name, value, bad]) => {
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = name;
      detail.textContent = value;
      if (bad) detail.className = "bad";
      return [term, detail];
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

  const show = (now) => {
    const then = before || now;
    before = now;
    const seconds = Math.max(now.server.time - then.server.time, 1e-3);
    const rate = (value, old) => (now === then ? 0 : Math.max(value - (old || 0), 0) / seconds);
    const latency = fresh(now.requests.latency, then.requests.latency);
    if (now !== then) {
      const keep = (name, value) => { history[name].push(value); if (history[name].length > KEEP) history[name].shift(); };
      keep("rate", rate(now.requests.total, then.requests.total));
      keep("bytes", rate(now.requests.sent, then.requests.sent));
      keep("p50", percentile(latency, .5));
      keep("p99", percentile(latency, .99));
      keep("cpu", rate(now.process.cpu, then.process.cpu) * 100);
    }
    if (paused) return;
    byId("about").textContent = `${now.server.version}, process ${now.server.pid}, ${now.server.threads} ${now.server.threads === 1 ? "worker" : "workers"}, up ${span(now.server.time - now.server.started)}`;
    const last = (name) => history[name].length ? history[name][history[name].length - 1] : 0;
    byId("rate").textContent = number(last("rate"));
    byId("bytes").textContent = size(last("bytes"));
    byId("latency").textContent = `${time(last("p50") || null)} · ${time(last("p99") || null)}`;
    byId("cpu").textContent = last("cpu").toFixed(last("cpu") < 10 ? 1 : 0) + " %";
    const open = now.connections.open.reduce((sum, [, count]) => sum + count, 0);
    facts("connections", [["open", `${number(open)} of ${number(now.connections.most)}`], ...now.connections.open.filter(([, count]) => count).map(([state, count]) => ["· " + state, number(count)]), ["accepted", number(now.connections.accepted)], ...[["closed for newcomers", now.connections.evicted], ["beyond their address's limit", now.connections.refused]].filter(([, count]) => count).map(([name, count]) => [name, number(count), true]), ["TLS handshakes", number(now.tls.full + now.tls.resumed)], ["· resumed", number(now.tls.resumed)], ["· failed", number(now.tls.failed + now.tls.late), now.tls.failed + now.tls.late > 0]]);
    facts("answers", [["in all", number(now.requests.total)], ...now.requests.status.map(([kind, count]) => [kind, number(count), kind === "5xx"]), ...now.requests.method.map(([name, count]) => [name, number(count)]), ...now.requests.protocol.map(([name, count]) => [name, number(count)])]);
    const asked = now.cache.hits + now.cache.misses;
    facts("cache", [["hits", asked ? (now.cache.hits / asked * 100).toFixed(1) + " %" : "–"], ["files", number(now.cache.files)], ["memory", `${size(now.cache.bytes)} of ${size(now.cache.most_bytes)}`], ["descriptors", number(now.cache.descriptors)], ["evictions", number(now.cache.evictions)]]);
    facts("process", [["memory", size(now.process.resident)], ["descriptors", `${number(now.process.descriptors)} of ${number(now.process.descriptor_limit)}`], ["processor time", now.process.cpu.toFixed(1) + " s"], ["log lines lost", number(now.log_lines_lost), now.log_lines_lost > 0]]);
    const routes = now.routes.map((route) => {
      const old = then.routes.find((other) => other.site === route.site && other.route === route.route) || { requests: 0, sent: 0, latency: [] };
      const took = now === then ? [] : fresh(route.latency, old.latency);
      return { route, rate: rate(route.requests, old.requests), sent: rate(route.sent, old.sent), p50: percentile(took, .5), p99: percentile(took, .99) };
    }).sort((a, b) => b.rate - a.rate || b.route.requests - a.route.requests);
    table("routes", routes.map(({ route, rate, sent, p50, p99 }) => [route.site || "–", route.route || "–", number(rate), size(sent), time(p50), time(p99), number(route.requests), route.failed ? { bad: number(route.failed) } : "0"]), "No request yet.");
    byId("scripts").closest("section").hidden = !now.scripts.length;
    table("scripts", now.scripts.map((pool) => [pool.name, pool.kind, `${number(pool.processes)} of ${number(pool.most)}`, number(pool.busy), pool.waiting ? { bad: number(pool.waiting) } : "0", pool.longest ? `${time(pool.longest * 1e6)} ${pool.longest_script}` : "–"]), "");
    const refused = (count) => count ? { bad: number(count) } : "0";
    const limits = now.limits.flatMap((of) => [
      of.concurrency && [of.concurrency.rule, `${number(of.concurrency.running)} run, ${number(of.concurrency.waiting)} wait`, number(of.concurrency.served), number(of.concurrency.queued), refused(of.concurrency.refused + of.concurrency.expired)],
      of.bandwidth && [of.bandwidth.rule, `${number(of.bandwidth.sending)} are sent`, size(of.bandwidth.sent), "–", refused(of.bandwidth.refused)],
      ...of.rates.map((rate) => [rate.rule, "–", number(rate.passed), "–", refused(rate.refused)]),
    ].filter(Boolean).map((row) => [of.site, of.route, ...row]));
    byId("limits").closest("section").hidden = !limits.length;
    table("limits", limits, "");
    byId("certificates").closest("section").hidden = !now.certificates.length;
    const until = (when) => when === null ? "–" : when <= now.server.time ? "due" : "in " + span(when - now.server.time);
    table("certificates", now.certificates.map((of) => {
      const left = of.expires === null ? { bad: "none yet" } : of.expires <= now.server.time ? { bad: "expired" } : span(of.expires - now.server.time);
      const error = of.error && { bad: `${span(now.server.time - of.failed_at)} ago: ${of.error}${of.next_try === null ? "" : `; next try ${until(of.next_try)}`}` };
      return [of.site, of.names.join(", ") || of.file, left, until(of.renewal), of.failures ? { bad: number(of.failures) } : "0", error || "–"];
    }), "");
    const clients = now.clients.map((client) => {
      const old = then.clients.find((other) => other.address === client.address) || { requests: 0, sent: 0 };
      return { client, rate: rate(client.requests, old.requests), sent: rate(client.sent, old.sent) };
    }).sort((a, b) => b.rate - a.rate || b.client.requests - a.client.requests).slice(0, 12);
    table("clients", clients.map(({ client, rate, sent }) => [client.address, number(rate), size(sent), time(client.took / client.requests), time(client.slowest)]), "They are counted while somebody looks.");
    redraw();
  };

  const link = (state, text) => { byId("link").dataset.state = state; byId("link").textContent = text; };
  const pause = byId("pause");
  const toggle = () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    pause.textContent = paused ? "Paused" : "Pause";
    if (!paused) redraw();
  };
  pause.addEventListener("click", toggle);
  document.addEventListener("keydown", (event) => {
    if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) toggle();
  });
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const source = new EventSource("events");
  source.onmessage = (event) => { link("live", "live"); show(JSON.parse(event.data)); };
  source.onerror = () => link("lost", "connection lost, trying again");
})();
