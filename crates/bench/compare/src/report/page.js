const button = document.querySelector("#theme");
button.hidden = false;
button.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const region of document.querySelectorAll(".scroll")) {
  const hint = document.createElement("p");
  hint.className = "soft hint";
  hint.textContent = "Scroll sideways to see all of it.";
  region.before(hint);
  new ResizeObserver(() => { hint.hidden = region.scrollWidth <= region.clientWidth; }).observe(region);
}
