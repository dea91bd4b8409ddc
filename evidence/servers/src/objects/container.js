// Makes a container. Status 0 if it is there afterwards.
const { createHmac } = require("crypto");
const [address, account, key, container] = process.argv.slice(1);
const date = new Date().toUTCString();
const signed = [
  "PUT" + "\n".repeat(11),
  `x-ms-date:${date}`,
  "x-ms-version:2023-11-03",
  `/${account}/${account}/${container}`,
  "restype:container",
].join("\n");
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64");
const headers = {
  "x-ms-date": date,
  "x-ms-version": "2023-11-03",
  authorization: `SharedKey ${account}:${signature}`,
};
fetch(`http://${address}/${account}/${container}?restype=container`, { method: "PUT", headers }).then(
  (answer) => process.exit([201, 409].includes(answer.status) ? 0 : 1),
  () => process.exit(1),
);
