// Package testsize is the one setting that decides how much a test does.
//
// Rounds, seeds and row counts are short in `make test` and full in `make soak`,
// which sets POSTRIDER_TEST_SIZE=full. Random seeds are logged by the tests that
// draw them, and POSTRIDER_TEST_SEED plays one of them again.
package testsize

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// The environment variables that decide.
const (
	EnvSize = "POSTRIDER_TEST_SIZE" // "full" for the full sizes; anything else, or nothing, for the short ones
	EnvSeed = "POSTRIDER_TEST_SEED" // a signed 64-bit integer in decimal: the seed that a failed test logged
)

// Full reports whether the full sizes are asked for (POSTRIDER_TEST_SIZE=full).
func Full() bool { return os.Getenv(EnvSize) == "full" }

// Pick returns full when the full sizes are asked for and short otherwise.
func Pick(short, full int) int {
	if Full() {
		return full
	}
	return short
}

// Seed returns the seed for the random choices of one test and logs it with the
// way to play it again. It is random, or the value of POSTRIDER_TEST_SEED if
// that is set; a value that is no integer fails the test.
func Seed(t testing.TB) int64 {
	t.Helper()
	seed := int64(rand.Uint64() >> 1)
	if text, ok := os.LookupEnv(EnvSeed); ok && text != "" {
		given, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q is no integer", EnvSeed, text)
		}
		seed = given
	}
	t.Logf("seed %d; again with %s=%d", seed, EnvSeed, seed)
	return seed
}

// Rand returns a source of random numbers for one purpose of a test. Different
// purposes of one seed get different, independent streams, so that adding a draw
// in one place leaves the others as they were. It is not safe for concurrent use.
func Rand(seed int64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(uint64(seed), h.Sum64()))
}
