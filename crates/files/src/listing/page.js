(() => {
  const filter = document.getElementById("filter");
  const rows = [...document.querySelectorAll("tbody tr")];
  const links = () => rows.filter((row) => !row.hidden).map((row) => row.querySelector("a"));
  filter.hidden = rows.length < 8;
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  const move = (by) => {
    const all = links();
    const at = all.indexOf(document.activeElement);
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
    if (next) next.focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = document.activeElement === filter;
    if (event.key === "ArrowDown" || (event.key === "j" && !typing)) move(1);
    else if (event.key === "ArrowUp" || (event.key === "k" && !typing)) move(-1);
    else if (event.key === "/" && !typing && !filter.hidden) filter.focus();
    else if (event.key === "Escape" && typing) { filter.value = ""; filter.dispatchEvent(new Event("input")); filter.blur(); }
    else if (event.key === "Enter" && typing) { const first = links()[0]; if (first) location.href = first.href; return; }
    else return;
    event.preventDefault();
  });
})();
