// In the book, links that leave docs/ lead to the repository, or nowhere if `git-repository-url` of book.toml is not set.
"use strict";
for (const link of document.querySelectorAll("main a[href^='../']")) {
  const root = new URL(path_to_root || ".", location.href).href;
  if (link.href.startsWith(root)) continue;
  const repository = document.querySelector("a[title='Git repository']");
  const [page, heading] = link.href.split("#");
  const path = page.slice(new URL("..", root).href.length).replace(/\.html$/, ".md");
  if (repository) link.href = `${repository.href}/blob/HEAD/${path}${heading ? "#" + heading : ""}`;
  else link.removeAttribute("href");
}
