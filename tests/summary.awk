# Reads ctest's LastTest.log and prints "N passed, M failed" over the Boost test cases of all
# suites. A suite that fails without a failed case in its report (a crash, a timeout, a rank other
# than the one that reports) counts as one failed. Exit code 1 on any failure or when nothing ran.
/^[0-9]+\/[0-9]+ Testing: / { suite = $3; cases = 0; failures = 0; suites++ }
/^ *[0-9]+ test cases? out of [0-9]+ passed/ { cases += $1 }
/^ *[0-9]+ test cases? out of [0-9]+ failed/ { failures += $1 }
/^Test (Passed|Failed|time|Timeout)?\.?$/ || /^Test (Passed|Failed)/ { finish($2 ~ /^Passed/) }
/^Test timed out|^Test not run|^Unable to find executable|^Could not find executable/ { finish(0) }
function finish(ok) {
  if (suite == "") return
  if (!ok && failures == 0) failures = 1
  if (ok && cases == 0) { print suite ": no test cases ran"; failures = 1 }
  if (failures > 0) print suite ": " failures " failed"
  passed += cases; failed += failures; suite = ""
}
END {
  finish(0)
  if (suites == 0) { print "no tests ran"; failed++ }
  printf "%d passed, %d failed\n", passed, failed
  exit failed > 0
}
