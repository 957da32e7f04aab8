package golden;

import com.alibaba.fastjson2.JSON;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What SQL92 expressions come to: written ones, every operator between operands of every kind, and words thrown together by a
 * fixed seed. Line 1 holds the property sets; each other line an expression and one letter for each set: T true, F false,
 * N unknown, E evaluation failed; `-` alone where the expression is refused.
 */
final class Filters {
    private static final String[][] SETS = {
        {},
        {"a", "1", "b", "2", "s", "abc", "t", "true"},
        {"a", "5", "b", "5", "s", "it's", "t", "false"},
        {"a", "5.5", "b", "-7", "s", "", "t", "TRUE"},
        {"a", "abc", "b", "abc", "s", "abcabc", "t", "yes"},
        {"a", "3000000000", "b", "9223372036854775808", "s", "1e3", "TAGS", "TagA", "KEYS", "k1 k2"},
        {"a", "+10", "b", " 10 ", "s", "\u4e2d\u6587", "A", "1", "$x", "1", "_y", "2"},
        {"a", "NaN", "b", "NaN", "s", "x\ny", "t", "tRuE"},
        {"a", "-0.0", "b", "0.0", "s", "0x1p3", "t", "1"},
        {"b", "2147483648", "s", "Infinity", "t", "\u0660\u0661"},
        {"a", "10d", "b", "0007", "s", "'", "t", "-Infinity"},
        {"a", "-5", "s", "%a_", "t", "null"},
    };

    private static final String[] WRITTEN = {
        // equality
        "a = 1", "a=1", "a = 5", "a = 5.5", "a = 5.0", "a = 1L", "a = 1l", "a = 'abc'", "a = 'ABC'", "a = b", "a = a", "b = a", "1 = a", "5.5 = a",
        "'abc' = a", "a <> 1", "a <> 'abc'", "a <> b", "1 <> a", "'abc' <> a", "s = ''", "s = ''''", "s = 'it''s'", "s <> 'it''s'", "s = '\u4e2d\u6587'",
        "a = 3000000000", "b = 2147483648", "b = 9223372036854775807", "b = 9223372036854775808", "a = 1e3", "s = 1e3", "s = 1000", "s = 1000.0", "s = 8.0",
        "a = 10.0", "b = 10.0", "b = 10", "b = 7", "a = -5", "a = - 5", "a = --5\n", "a = - -5", "a = +5", "a = + +5", "a = -(-5)", "a = -5.5", "-5 = a", "-a = 5", "-a = -5",
        "+a = 5", "a = b = TRUE", "a = b = FALSE", "(a = b) = TRUE", "TRUE = (a = b)", "(a = b) = (b = a)", "a = 1 = 1", "a = 1 <> 1", "(a = 1) = 'true'", "1 = 1", "1 = 2",
        "1 = 1.0", "1 = 1L", "2147483648 = 2147483648.0", "'a' = 'a'", "'a' = 'b'", "'1' = 1", "1 = '1'", "'x' = 1", "1.5 = '1.5'", "TRUE = TRUE", "TRUE = FALSE", "TRUE = 1",
        "1 = TRUE", "'true' = TRUE", "'TRUE' = TRUE", "'x' = TRUE", "TRUE = 'true'", "t = TRUE", "t = FALSE", "t <> TRUE", "TRUE = t", "TRUE <> t", "a = NULL", "NULL = a",
        "NULL = NULL", "a <> NULL", "a == 1", "a != 1", "a => 1", "a =< 1", "a = ", "= 1", "a", "b", "t", "missing", "NOT a", "NOT t", "NOT missing", "TAGS = 'TagA'",
        "KEYS CONTAINS 'k2'", "A = 1", "$x = 1", "_y = 2", "$x", "a.b = 1", "a-b = 1", "`a` = 1", "\"a\" = 1", "a = \"abc\"",
        // size
        "a > 1", "a >= 1", "a < 1", "a <= 1", "a > 0", "a < 100", "a > 5.4", "a >= 5.5", "a < 5.6", "a <= 5.5", "a > 2999999999", "a >= 3000000000", "a > -6", "a < -4", "a > -2147483648",
        "a > - - 2147483648", "b > -2147483648", "b < 0.5", "a > b", "a >= b", "a < b", "a <= b", "b > a", "1 > a", "1 < a", "5.0 <= a", "-1 < a", "-a > 1", "1 > -a", "-a > -b", "a > 'abc'", "a > '1'",
        "'1' > a", "'1' > '0'", "a > TRUE", "TRUE > a", "a > NULL", "NULL < 1", "(a = 1) > 1", "a > (b = 1)", "1 > 2", "2 > 1", "2 > 1.5", "1.5 > 2", "1 > 1L", "3000000000 > 1", "1 > 3000000000",
        "a > 1 > 2", "a > (b)", "(a) > (1)", "((a)) > ((1))", "a > +1", "a > + b", "s > 1", "s < 2000.0", "s < 9.0", "s >= 8.0", "t > 0", "t < 11", "t = 1", "t = 1.0", "a > -0.5", "b >= 0.5e-300",
        // literals
        "a = 0", "a = 00", "a = 007", "b = 007", "b = 07L", "b = 07.0", "a = 0l", "a = 0L", "a = 0x10", "a = 0.0", "a = 0.", "a = .0", "a = 0e0", "a = 1.", "a = .5", "a = 1.e1", "a = .5E1", "a = 5E0", "a = 5e+0", "a = 5e-0", "a = 5e", "a = 5e+",
        "a = 5.5e", "a = 1e400", "a = 1e-400", "a = 1.7976931348623157e308", "a = 4.9e-324", "a = 2147483647", "a = 2147483648", "a = -2147483648", "a = 9223372036854775807", "a = -9223372036854775808",
        "a = 99999999999999999999", "a = 1_000", "a = 12abc", "a = 5f", "a = 5d", "a = 5.5f", "a = 'abc", "a = abc'", "a = 'it''", "s = 'it''s", "a = ''''''", "a = '\n'", "s = 'x\ny'", "a = 'a' 'b'", "a = 1 1", "a = 5,5",
        // between
        "a BETWEEN 1 AND 5", "a between 1 and 5", "a NOT BETWEEN 1 AND 5", "a BETWEEN 5 AND 1", "a NOT BETWEEN 5 AND 1", "a BETWEEN 1 AND 1", "a BETWEEN 1.5 AND 5", "a BETWEEN 5 AND 1.5", "a BETWEEN 1 AND 3000000000",
        "a BETWEEN -5 AND 5", "a BETWEEN -5 AND -10", "a BETWEEN b AND 10", "a BETWEEN 1 AND b", "a BETWEEN b AND b", "5 BETWEEN a AND b", "5 BETWEEN 1 AND 10", "15 BETWEEN 1 AND 10", "15 NOT BETWEEN 1 AND 10",
        "a BETWEEN '1' AND '5'", "a BETWEEN 'a' AND 'z'", "a NOT BETWEEN 'a' AND 'z'", "a BETWEEN NULL AND 5", "a BETWEEN 1 AND NULL", "a BETWEEN TRUE AND FALSE", "a BETWEEN 1 AND 5 AND b = 5", "a BETWEEN 1 AND 5 OR b = 2",
        "a BETWEEN 1", "a BETWEEN 1 AND", "a BETWEEN AND 5", "a BETWEEN 1 OR 5", "a BETWEEN (1) AND (5)", "a BETWEEN (1 AND 5)", "'abc' BETWEEN 1 AND 5", "(a = 1) BETWEEN 1 AND 5", "NOT a BETWEEN 1 AND 5", "NOT (a BETWEEN 1 AND 5)",
        "a BETWEEN 1 AND 5 = TRUE", "a BETWEEN 1 AND 5 IS NULL", "a BETWEEN 1 AND 5 BETWEEN 1 AND 5", "-a BETWEEN -5 AND -1",
        // in
        "s IN ('abc')", "s in ('abc', 'abcabc')", "s NOT IN ('abc')", "s not in ('abc', 'abcabc')", "s IN ('a','b','c','abc','d','e')", "s NOT IN ('a','b','c','abc','d','e')", "a IN ('1')", "a IN (1)", "a IN ('1', 2)", "a IN ()", "a IN ('1',)",
        "a IN (,'1')", "a IN '1'", "a IN ('1'", "a IN ('1' '2')", "'abc' IN ('abc')", "1 IN ('1')", "(s) IN ('abc')", "+s IN ('abc')", "-s IN ('abc')", "(a = 1) IN ('abc')", "s IN ('it''s')", "s IN ('''')", "s IN ('')", "NOT s IN ('abc')", "NOT (s IN ('abc'))",
        "s IN ('abc') = TRUE", "s IN ('abc') IN ('abc')", "s IN (NULL)", "s IN (a)", "s IN ('abc') AND a = 1", "missing IN ('x')", "missing NOT IN ('x')",
        // null
        "a IS NULL", "a is null", "a IS NOT NULL", "a is not null", "missing IS NULL", "missing IS NOT NULL", "NOT a IS NULL", "NOT (a IS NULL)", "NOT missing IS NULL", "1 IS NULL", "'x' IS NULL", "NULL IS NULL", "NULL IS NOT NULL", "TRUE IS NULL",
        "(a = 1) IS NULL", "(a = 1) IS NOT NULL", "a = 1 IS NULL", "a > 1 IS NULL", "-a IS NULL", "-5 IS NULL", "a IS TRUE", "a IS", "a IS NOT", "a IS NOT TRUE", "IS NULL", "a IS NULL IS NULL", "a IS NULL = TRUE", "a NOT NULL", "a ISNULL",
        // search
        "s CONTAINS 'b'", "s contains 'bc'", "s NOT CONTAINS 'b'", "s CONTAINS ''", "s NOT CONTAINS ''", "s CONTAINS '%'", "s CONTAINS ''''", "a CONTAINS '5'", "missing CONTAINS 'a'", "missing NOT CONTAINS 'a'", "'abc' CONTAINS 'b'", "'abc' NOT CONTAINS 'b'",
        "5 CONTAINS '5'", "5 NOT CONTAINS '5'", "TRUE CONTAINS 'T'", "(a = 1) CONTAINS 'x'", "(a = 1) NOT CONTAINS 'x'", "-a CONTAINS '5'", "s CONTAINS b", "s CONTAINS 5", "s CONTAINS NULL", "s CONTAINS", "NOT s CONTAINS 'b'", "NOT (s CONTAINS 'b')",
        "s CONTAINS 'b' CONTAINS 'b'", "s CONTAINS 'b' = TRUE", "s CONTAINS '\u6587'", "s STARTSWITH 'a'", "s startswith 'abc'", "s NOT STARTSWITH 'a'", "s STARTSWITH ''", "s NOT STARTSWITH ''", "s STARTSWITH 'abcabcabc'", "missing STARTSWITH 'a'", "missing NOT STARTSWITH 'a'",
        "NOT (missing STARTSWITH 'a')", "5 STARTSWITH '5'", "'abc' STARTSWITH 'a'", "s STARTSWITH a", "s ENDSWITH 'c'", "s endsWith 'abc'", "s NOT ENDSWITH 'c'", "s ENDSWITH ''", "s NOT ENDSWITH ''", "missing ENDSWITH 'a'", "missing NOT ENDSWITH 'a'", "s ENDSWITH 5", "s LIKE 'a%'",
        "s NOT LIKE 'a%'", "s STARTS WITH 'a'", "NULL CONTAINS 'x'", "NULL NOT CONTAINS 'x'",
        // logic
        "a = 1 AND b = 2", "a = 1 and b = 2", "a = 1 OR b = 5", "a = 1 or b = 5", "NOT (a = 1)", "not (a = 1)", "NOT NOT (a = 1)", "NOT a = 1", "NOT a > 1", "NOT TRUE", "NOT FALSE", "NOT NULL", "TRUE", "FALSE", "NULL", "true", "False", "nUlL", "(TRUE)", "TRUE AND FALSE",
        "TRUE OR FALSE", "TRUE AND NULL", "FALSE AND NULL", "NULL AND TRUE", "NULL AND FALSE", "NULL AND NULL", "TRUE OR NULL", "FALSE OR NULL", "NULL OR TRUE", "NULL OR FALSE", "NULL OR NULL", "NOT NULL OR TRUE", "a AND b", "a OR b", "a AND TRUE", "a OR TRUE", "t AND TRUE",
        "missing AND TRUE", "missing AND FALSE", "missing OR TRUE", "missing OR FALSE", "missing = 1 OR TRUE", "missing = 1 AND FALSE", "missing > 1 OR missing <= 1", "NOT (missing > 1)", "TRUE AND 1", "1 AND TRUE", "1", "'abc'", "1 OR 2", "NOT 1", "NOT 'abc'", "-a", "-1", "+a",
        "+1", "- TRUE", "-(a = 1)", "-TRUE IS NULL", "-(a = 1) IS NULL", "-'1' IS NULL", "+TRUE", "+(a = 1)", "a = 1 OR b = 2 AND s = 'zzz'", "(a = 1 OR b = 2) AND s = 'zzz'", "a = 1 AND b = 2 OR s = 'abc'", "s = 'zzz' AND a = 1 OR b = 2", "a > 3 OR TRUE", "TRUE OR a > 3", "a > 3 AND FALSE",
        "FALSE AND a > 3", "s > 3 OR a = 1", "a = 1 OR s > 3", "NOT (s > 3)", "a = 1 AND", "AND a = 1", "a = 1 OR OR b = 2", "a = 1 XOR b = 2", "a = 1 && b = 2", "a = 1 || b = 2", "()", "(a = 1", "a = 1)", "((a = 1) AND ((b = 2)))", "((a = 1) AND ((b = 2))", "(a) = 1", "(a = 1))", "a = (1)", "(a AND b) OR t",
        // around the expression
        "", " ", "\n", "--", "-- only\n", "/* only */", " a = 1 ", "\ta\n=\r1\f", "a = 1 -- comment", "a = 1 -- comment\n", "-- comment\na = 1", "-- comment\ra = 1", "-- comment\r\na = 1", "a /* x */ = /* y */ 1", "a = 1 /* open", "/* open", "/**/a = 1", "/***/a = 1", "/* * / */a = 1", "/*/a = 1",
        "/* a */ */ = 1", "a = 1 foo", "a = 1 foo # bar", "a = 1 #", "a = 1 ;", "a = 1 'open", "a = 1 'x'", "a = 1 NOT", "a = 1 NOT b", "a = 1 TRUE", "a = 1 (", "a = 1 , b", "a b", "a 1", "NOT", "AND", "notable = 1", "NOTa = 1", "andy IS NULL", "inn IS NULL", "a\u00a0= 1", "\u00e9 = 1", "a = 1\u3000", "\u212a = 1",
        "a = 1 AND b = 2 AND s = 'abc' AND t = TRUE", "a = 1 OR a = 5 OR a = 5.5 OR a = 'abc'", "a ** 2 = 1", "a + 1 = 2", "a - 1 = 0", "a * 2 = 2", "a / 2 = 1", "a % 2 = 1", "a = 1 + 1", "func(a) = 1", "a = ?", "a = :x", "a = @x", "#", "a = 1\u0000", "a = '\u0000'",
    };

    private static final String[] OPERANDS = {
        "a", "s", "t", "missing", "5", "3000000000", "5.5", "'5'", "'abc'", "'true'", "TRUE", "NULL", "-5", "-a", "(a = 1)", "(missing = 1)", "NOT t",
    };
    private static final String[] OPERATORS = {"=", "<>", "<", "<=", ">", ">=", "AND", "OR"};
    private static final String[] WORDS = {
        "a", "b", "s", "t", "missing", "1", "5", "5.5", "2147483648", "'abc'", "'5'", "''", "TRUE", "FALSE", "NULL", "NOT", "NOT", "AND", "AND", "OR", "OR", "IS", "IN", "IN ('abc','5')", "BETWEEN", "BETWEEN 1 AND",
        "CONTAINS", "STARTSWITH", "ENDSWITH 'c'", "=", "=", "<>", "<", "<=", ">", ">=", "(", "(", ")", ")", ",", "+", "-", "IS NULL", "IS NOT NULL", "a = 1", "s CONTAINS 'b'", "a > 3", "t = TRUE", "b",
    };

    private Filters() {
    }

    static void write() throws Exception {
        Set<String> expressions = new LinkedHashSet<>();
        for (String one : WRITTEN) {
            expressions.add(one);
        }
        for (String left : OPERANDS) {
            for (String operator : OPERATORS) {
                for (String right : OPERANDS) {
                    expressions.add(left + " " + operator + " " + right);
                }
            }
        }
        Random random = new Random(92);
        for (int taken = 0; taken < 1500; ) {
            StringBuilder text = new StringBuilder();
            int words = 3 + random.nextInt(8);
            for (int i = 0; i < words; i++) {
                text.append(i == 0 ? "" : " ").append(WORDS[random.nextInt(WORDS.length)]);
            }
            // Words thrown together rarely make sense: keep all that do and one in six of the others.
            boolean sense = !refused(text.toString());
            if ((sense || random.nextInt(6) == 0) && expressions.add(text.toString())) {
                taken++;
            }
        }
        List<Object> sets = new ArrayList<>();
        for (String[] pairs : SETS) {
            sets.add(properties(pairs));
        }
        StringBuilder lines = new StringBuilder(JSON.toJSONString(sets)).append('\n');
        for (String expression : expressions) {
            lines.append(JSON.toJSONString(new String[] {expression, results(expression)})).append('\n');
        }
        Out.write("sql92.jsonl", lines.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, String> properties(String[] pairs) {
        Map<String, String> result = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            result.put(pairs[i], pairs[i + 1]);
        }
        return result;
    }

    private static boolean refused(String expression) {
        try {
            FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(expression);
            return false;
        } catch (Exception e) {
            return true;
        }
    }

    private static String results(String expression) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(expression);
        } catch (Exception e) {
            return "-";
        }
        StringBuilder letters = new StringBuilder();
        for (String[] pairs : SETS) {
            letters.append(letter(compiled, properties(pairs)));
        }
        return letters.toString();
    }

    private static char letter(Expression compiled, Map<String, String> properties) {
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(new HashMap<>(properties)));
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : 'F';
        } catch (Exception e) {
            return 'E';
        }
    }
}
