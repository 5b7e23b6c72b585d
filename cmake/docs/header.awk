# SPDX-License-Identifier: Apache-2.0

# Turns a header into what Doxygen reads in its place: plain comments become Doxygen's, and what users never meet
# becomes empty. Each line stays where it is, so that a warning names the header's line.
#
#   awk -f header.awk include/lockstep/tensor/tensor.hpp

{ line[NR] = $0 }

function is_comment(i) { return line[i] ~ /^ *\/\/( |$)/ }

function end_of_comment(i) {
  while (is_comment(i + 1)) ++i
  return i
}

# A comment documents what follows it at once. Others head a section, a file or a namespace.
function documents_something(last) { return line[last + 1] !~ /^ *($|#|}|namespace )/ }

# Outside of `code` the comments use Markdown alone, so all that means something to Doxygen is escaped, but the name of
# a header becomes a link, which has to lead somewhere.
function words(text,    part, count, i, result) {
  count = split(text, part, "`")
  for (i = 1; i <= count; ++i) {
    if (i % 2) {
      gsub(/[<>@\\#%&]|--/, "\\\\&", part[i])
      gsub(/[a-z0-9_\/]+\.hpp/, "@ref & \"&\"", part[i])
    }
    result = result (i > 1 ? "`" : "") part[i]
  }
  return result
}

function is_indented(i) { return line[i] ~ /^ *\/\/   / }

# Prints a comment with `mark` in place of its slashes. A line that begins with a bold word begins a paragraph. Code is
# what follows **Example.**, unless it is marked as such already, and lines that are indented below an empty one.
function print_comment(first, last, mark,    i, in_example, indented, indent, text) {
  for (i = first; i <= last; ++i) {
    indent = line[i]
    sub(/\/\/.*/, "", indent)
    text = substr(line[i], length(indent) + 3)
    if (text ~ /^ \*\*/) in_example = text ~ /^ \*\*Example\.\*\*( [^`]*)?$/
    indented = !in_example && is_indented(i) && (indented || line[i - 1] ~ /^ *\/\/$/)
    if (in_example || indented) {
      sub(/^ \*\*Example\.\*\*/, " <p>**Example.** @code{.cpp}", text)
      gsub(/ls::/, "lockstep::", text)  # Doxygen links ls::scatter to distributed::scatter
      if (i == last || line[i + 1] ~ /^ *\/\/ \*\*/ || (indented && !is_indented(i + 1))) text = text " @endcode"
    } else if (text == "" && i < last && is_indented(i + 1)) {
      text = " @code{.cpp}"
    } else {
      text = words(text)
      sub(/^ \*\*/, " <p>**", text)
    }
    print indent mark text
  }
}

# The last line of a namespace, which repeats its name.
function end_of_namespace(i,    end) {
  end = line[i]
  sub(/ \{$/, "", end)
  while (i < NR && line[i] != "}  // " end) ++i
  return i
}

# Whether a class in these lines is a base of public classes, whose members users call.
function has_base(first, last,    i) {
  for (i = first; i <= last; ++i) {
    if (line[i] ~ /^(class|struct) (BatchNorm|ModuleWrapper|RecurrentLayers) \{$/) return 1
  }
  return 0
}

END {
  line[1] = ""  # the licence
  describes_file = 1
  for (i = 1; i <= NR; i = last + 1) {
    last = i
    if (line[i] ~ /^namespace ([a-z_:]+::)?(cuda|detail)(::[a-z_:]+)? \{$/ && !has_base(i, end_of_namespace(i))) {
      last = end_of_namespace(i)
      for (; i <= last; ++i) print ""
    } else if (is_comment(i + 1) && !documents_something(end_of_comment(i + 1)) && describes_file && line[i] == "") {
      last = end_of_comment(i + 1)
      print "/// @file"
      print_comment(i + 1, last, "///")
      describes_file = 0
    } else if (is_comment(i)) {
      last = end_of_comment(i)
      print_comment(i, last, documents_something(last) ? "///" : "//")
    } else if (line[i] ~ /^enum class [A-Za-z0-9_: ]+;/) {
      print ""  # Doxygen takes this for a variable
    } else if (match(line[i], /[;,] +\/\/ /) && line[i] !~ /^ *(class|struct) [A-Za-z0-9_]+;/) {
      # A comment at the end of a line, which may go on below.
      at = RSTART + RLENGTH - 4
      while (is_comment(last + 1) && index(line[last + 1], "//") == at + 1) ++last
      for (; i <= last; ++i) print substr(line[i], 1, at) "///<" words(substr(line[i], at + 3))
    } else {
      print line[i]
    }
    if (line[last] ~ /^namespace /) describes_file = 0
  }
}
