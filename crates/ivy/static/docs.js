// Shows the OpenAPI document, asked for from this server alone.

const element = (name, text, ...children) => {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};
const show = async () => {
  const api = await (await fetch("openapi.json")).json();
  const follow = (schema) =>
    schema && schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema || {};
  const type = (schema) => {
    if (!schema) return "";
    if (schema.$ref) return schema.$ref.split("/").pop();
    if (schema.oneOf) return schema.oneOf.map(type).filter((t) => t !== "null").join(" | ");
    if (schema.type === "array") return `[${type(schema.items)}]`;
    const types = [].concat(schema.type || "object").filter((t) => t !== "null");
    return types.join(" | ");
  };
  const fields = (schema) => {
    const shape = follow(schema);
    if (!shape.properties) return element("p", type(schema));
    const table = element("table");
    for (const [name, field] of Object.entries(shape.properties)) {
      const needed = (shape.required || []).includes(name);
      const row = element("tr");
      row.append(
        element("td", "", element("code", name)),
        element("td", type(field) + (needed ? "" : ", optional")),
        element("td", field.description || ""),
      );
      table.append(row);
    }
    return table;
  };
  const json = (holder) => holder && holder.content && holder.content["application/json"];
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const tag = (operation.tags || ["Other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ path, method, operation });
    }
  const main = document.getElementById("main");
  main.textContent = "";
  for (const [tag, operations] of groups) {
    main.append(element("h2", tag));
    for (const { path, method, operation } of operations) {
      const summary = element("summary", "");
      const verb = element("span", method.toUpperCase());
      verb.className = "method";
      const note = element("span", ` ${operation.summary || ""}`);
      note.className = "muted";
      summary.append(verb, element("code", path), note);
      const box = element("details", "", summary);
      const request = json(operation.requestBody);
      if (request) box.append(element("h4", "Request"), fields(request.schema));
      const answer = json((operation.responses || {})["200"]);
      if (answer) box.append(element("h4", "Answer"), fields(answer.schema));
      main.append(box);
    }
  }
};
show().catch((error) => {
  document.getElementById("main").textContent = `openapi.json: ${error}`;
});
