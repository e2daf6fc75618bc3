/* SPDX-License-Identifier: Apache-2.0 */
/* Reading data that may lack anything: `get` walks to a field and gives undefined instead of failing, `number` gives a
 * finite number or null. And sections, the shape of every page. */

function get(from, ...path) {
    let at = from;
    for (const key of path) {
        if (at === null || at === undefined || typeof at !== "object" || !Object.hasOwn(at, key))
            return undefined;
        at = at[key];
    }
    return at;
}

function number(from, ...path) {
    const found = get(from, ...path);
    return isNumber(found) ? found : null;
}

function list(from, ...path) {
    const found = get(from, ...path);
    return Array.isArray(found) ? found : [];
}

function text(from, ...path) {
    const found = get(from, ...path);
    return typeof found === "string" && found ? found : null;
}

function section(id, title, intro, ...nodes) {
    return el(
        "section",
        {id, "aria-labelledby": id + "-h"},
        el("h2", {id: id + "-h"}, title),
        intro ? el("p", {class: "intro"}, intro) : null,
        nodes,
    );
}
