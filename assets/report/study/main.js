/* SPDX-License-Identifier: Apache-2.0 */
const results = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const title = document.createElement("h1");
title.textContent = results.title || "Study report";
page.append(title);
for (const f of results.findings || []) {
    const p = document.createElement("p");
    p.textContent = f.verdict + ": " + f.text;
    page.append(p);
}
