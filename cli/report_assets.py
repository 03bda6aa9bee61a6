"""Style and script of the page: one of each, whole. The script looks things up; it computes nothing."""

from __future__ import annotations

from .pictures.palette import DARK, LIGHT
from .pictures.svg import FONT, STYLE


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{tone}:{colour};" for tone, colour in colours.items())


CSS = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    f"body{{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 {FONT}}}"
    """
main{max-width:1180px;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0;max-width:75ch;overflow-wrap:anywhere}
.lead{font-size:1.1rem}
.quiet,figcaption,dt,small{color:var(--muted)}
.verdict{display:inline-block;padding:.1rem .6rem;border-radius:.3rem;color:var(--onbar);font-weight:600}
[data-fits="1"] .verdict{background:var(--s2)}
[data-fits="0"] .verdict{background:var(--s4)}
[data-fits="1"] .no,[data-fits="0"] .yes{display:none}
.panel{border:1px solid var(--grid);border-radius:.5rem;padding:1rem;margin:1rem 0}
.sliders{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:.5rem 1.5rem}
.sliders label{display:block;font-weight:600}
.sliders output{font-weight:400;color:var(--muted);display:block}
input[type=range]{width:100%;min-height:2rem;accent-color:var(--s0)}
:focus-visible{outline:3px solid var(--s0);outline-offset:2px}
.figures{display:grid;grid-template-columns:repeat(4,1fr);gap:.75rem 1.25rem}
@media (max-width:720px){.figures{grid-template-columns:repeat(2,1fr)}}
.figures,.bill{margin:1rem 0 .5rem}
.figures dt{font-size:.85rem}
.figures dd{margin:0;font-size:1.05rem;font-weight:600;overflow-wrap:anywhere}
.bill{display:flex;height:1.4rem;border:1px solid var(--muted);border-radius:.25rem;overflow:hidden}
.bill span{flex:0 1 0}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;list-style:none}
.key{font-size:.85rem;color:var(--muted)}
.key i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.35rem}
.t0{background:var(--s0)}.t1{background:var(--s1)}.t2{background:var(--s2)}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));gap:1rem}
figure{margin:0;border:1px solid var(--grid);border-radius:.5rem;padding:.25rem;break-inside:avoid}
figure svg{display:block;width:100%;height:auto}
.narrow{display:none}
@media (max-width:560px){.wide{display:none}.narrow{display:block}}
.scroll{overflow-x:auto}
table{margin:.5rem 0 1.2rem;border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.25rem 0}
th,td{padding:.25rem .7rem .25rem 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child,.words{text-align:left}
.words{white-space:normal;min-width:14rem}
th{color:var(--muted);font-weight:600}
tr.now td{font-weight:600}
code,pre{font:.85rem/1.45 ui-monospace,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}
pre{white-space:pre-wrap;margin:.5rem 0}
details{margin:.5rem 0}
summary{cursor:pointer;font-weight:600}
.sources dt{font-weight:600;margin-top:.4rem}.sources dd{margin:0;overflow-wrap:anywhere}
body:not(.live) .sliders{display:none}
@media print{details::details-content{content-visibility:visible;display:block}}
@media print{h2{break-after:avoid}body{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media print{.pictures{display:block}figure{max-width:14cm;margin-bottom:.5cm}}
@media print{.sliders{display:none}main{max-width:none;padding:0}a{color:inherit}.scroll{overflow:visible}}
""" + STYLE
)

SCRIPT = """
"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const data = JSON.parse(get("lattice").textContent);
  const panel = get("panel");
  const axes = data.axes.map((axis) => ({ slider: get(axis), said: get(axis + "-said"), names: data[axis] }));
  const parts = Array.from(get("bill").children);
  const show = () => {
    let cell = data.cells;
    for (const axis of axes) {
      const name = axis.names[axis.slider.value];
      axis.said.textContent = name;
      axis.slider.setAttribute("aria-valuetext", name);
      cell = cell[axis.slider.value];
    }
    data.figures.forEach((name, i) => { get("figure-" + name).textContent = cell[0][i]; });
    panel.dataset.fits = cell[1];
    parts.forEach((part, i) => { part.style.flexGrow = cell[2][i]; });
  };
  for (const axis of axes) axis.slider.addEventListener("input", show);
  get("again").addEventListener("click", () => {
    for (const axis of axes) axis.slider.value = axis.slider.defaultValue;
    show();
  });
  document.body.classList.add("live");
  show();
})();
"""
