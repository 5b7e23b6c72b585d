# SPDX-License-Identifier: Apache-2.0

# Turns a page of Markdown into what Doxygen reads in its place: a link to a page, a heading or a header becomes a
# reference, and one to another file plain words. Each line stays where it is.
#
#   awk -f page.awk README.md

# The name of a page, under which other pages find it.
function page(path) {
  if (path ~ /include\/lockstep\/README\.md$/) return "map"
  if (path ~ /README\.md$/) return "index"
  gsub(/.*\/|\.md$/, "", path)
  return path
}

# The name of a heading: its page's, and what GitHub makes of the heading.
function section(path, heading) {
  heading = tolower(heading)
  gsub(/[^a-z0-9 _-]/, "", heading)
  gsub(/ /, "-", heading)
  return page(path) "-" heading
}

function converted(link,    words, target, hash) {
  words = link
  sub(/\]\(.*/, "]", words)
  target = substr(link, length(words) + 2, length(link) - length(words) - 2)
  if (target ~ /^https?:/) return link
  if (words ~ /^!/) {
    sub(/.*\//, "", target)  # Doxygen looks for images in IMAGE_PATH
    return words "(" target ")"
  }
  gsub(/`/, "", words)
  hash = index(target, "#")
  if (target ~ /(^|\/)tests\// || target !~ /\.hpp$|\.md(#|$)/) return substr(words, 2, length(words) - 2)
  if (hash) target = section(substr(target, 1, hash - 1), substr(target, hash + 1))
  else if (target ~ /\.md$/) target = page(target)
  else sub(/.*include\//, "", target)
  return words "(@ref " target ")"
}

/^```/ { in_code = !in_code }

in_code {
  sub(/^namespace ls = lockstep;$/, "")
  if (gsub(/ls::/, "lockstep::")) sub(/ +\/\/ /, "  // ")  # Doxygen links ls::scatter to distributed::scatter
  print
  next
}

/^# / && page(FILENAME) != "index" { $0 = $0 " {#" page(FILENAME) "}" }
/^##+ / { $0 = $0 " {#" section(FILENAME, substr($0, index($0, " ") + 1)) "}" }

{
  rest = $0
  text = ""
  while (match(rest, /!?\[[^][]*\]\([^() ]+\)/)) {
    text = text substr(rest, 1, RSTART - 1) converted(substr(rest, RSTART, RLENGTH))
    rest = substr(rest, RSTART + RLENGTH)
  }
  print text rest
}
