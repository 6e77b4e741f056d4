(() => {
  const byId = (id) => document.getElementById(id);
  const filter = byId("filter"), count = byId("count"), letters = byId("letters");
  const rows = [...document.querySelectorAll("tbody tr")];
  const entries = rows.filter((row) => row.querySelector("bdi"));
  const all = count.textContent;
  const links = () => rows.filter((row) => !row.hidden).map((row) => row.querySelector("a"));
  // Several pages are filtered by the server: this one does not have all names.
  const isSentToServer = filter.form !== null, label = filter.placeholder;
  if (!isSentToServer) filter.hidden = entries.length < 8;
  byId("help").hidden = !rows.length;
  // The setting lasts if the browser keeps data for this site.
  const remembered = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("letter-keys", value);
      return localStorage.getItem("letter-keys");
    } catch { return null; }
  };
  const hint = () => { filter.placeholder = letters.checked && matchMedia("(hover: hover)").matches ? `${label} (press /)` : label; };
  letters.checked = remembered() !== "off";
  letters.addEventListener("change", () => { remembered(letters.checked ? "on" : "off"); hint(); });
  hint();
  filter.addEventListener("input", () => {
    if (isSentToServer) return;
    const wanted = filter.value.toLowerCase();
    for (const row of rows) row.hidden = wanted !== "" && !(row.querySelector("bdi")?.textContent.toLowerCase().includes(wanted));
    const shown = entries.filter((row) => !row.hidden).length;
    count.textContent = !wanted ? all : shown ? `${shown} of ${entries.length} names match` : "No matches";
  });
  const go = (at) => {
    const shown = links();
    shown[Math.min(Math.max(at, 0), shown.length - 1)]?.focus();
  };
  const move = (by) => {
    const at = links().indexOf(document.activeElement);
    go(at < 0 ? (by > 0 ? 0 : Infinity) : at + by);
  };
  const pages = { n: document.querySelector("[rel=next]"), p: document.querySelector("[rel=prev]") };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = document.activeElement === filter;
    const letter = letters.checked && !typing ? event.key : "";
    if (event.key === "ArrowDown" || letter === "j") move(1);
    else if (event.key === "ArrowUp" || letter === "k") move(-1);
    else if (event.key === "Home" && !typing) go(0);
    else if (event.key === "End" && !typing) go(Infinity);
    else if (letter === "/" && !filter.hidden) filter.focus();
    else if (event.key === "Escape" && typing) { filter.value = ""; filter.dispatchEvent(new Event("input")); filter.blur(); }
    else if (pages[letter]) pages[letter].click();
    else if (event.key === "Enter" && typing && !isSentToServer) { const first = links()[0]; if (first) location.href = first.href; }
    else return;
    event.preventDefault();
  });
})();
