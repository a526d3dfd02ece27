# Reads ctest's LastTest.log and prints "N passed, M failed" over the Boost test cases of all
# suites. A suite that fails without a failed case in its report (a crash, a timeout, a rank other
# than the one that reports) counts as one failed, and so does one that runs no case. Exit code 1 on
# any failure or when nothing ran.
/^[0-9]+\/[0-9]+ Testing: / { finish(0); suite = $3; cases = 0; failures = 0; suites++ }
/^ *[0-9]+ test cases? out of [0-9]+ passed/ { cases += $1 }
/^ *[0-9]+ test cases? out of [0-9]+ failed/ { failures += $1 }
/^Test Passed\./ { finish(1) }
function finish(ok) {
  if (suite == "") return
  if (ok && cases == 0) { print suite ": no test case ran"; failures = 1 }
  if (!ok && failures == 0) { print suite ": ended without a failed case of its own"; failures = 1 }
  if (failures > 0) print suite ": " failures " failed"
  passed += cases; failed += failures; suite = ""
}
END {
  finish(0)
  if (suites == 0) { print "no tests ran"; failed++ }
  printf "%d passed, %d failed\n", passed, failed
  exit failed > 0
}
