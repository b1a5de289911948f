//! Templates that come to one table, recognised when they are compiled.
//!
//! Most templates say one event in their own words and make a table of several. What they do with several then is known beforehand: they
//! write the block of [`Table`] on a line of its own, and nothing else. So it is written without running the template. The parsed template
//! is looked at: either all of it is `{{ rows|toon(..) }}`, or it is an `if count == 1` whose `else` is that; and the options are constant.
//! What is not recognised runs as ever.

use minijinja::{
    machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Stmt},
    value::{Kwargs, Value as Printed},
};

use super::{filters::picked_columns, table::Table};

/// What a template does with some numbers of rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The least number of rows it holds for.
    pub(super) rows_min: usize,
    /// All that it writes.
    pub(super) table: Table,
}

impl Plan {
    /// Recognises a template that was parsed.
    pub(super) fn of(template: &Stmt<'_>) -> Option<Self> {
        let Stmt::Template(template) = template else { return None };
        let all = only(&template.children)?;
        if let Stmt::IfCond(choice) = all
            && is_one(&choice.expr)
        {
            return Some(Self { rows_min: 2, table: table(only(&choice.false_body)?)? });
        }
        Some(Self { rows_min: 1, table: table(all)? })
    }
}

/// The only statement besides white space.
fn only<'t, 's>(statements: &'t [Stmt<'s>]) -> Option<&'t Stmt<'s>> {
    let is_blank = |statement: &&Stmt<'_>| matches!(statement, Stmt::EmitRaw(text) if text.raw.trim_matches([' ', '\r', '\n']).is_empty());
    let mut rest = statements.iter().filter(|statement| !is_blank(statement));
    let first = rest.next()?;
    rest.next().is_none().then_some(first)
}

/// Whether an expression is `count == 1`.
fn is_one(expression: &Expr<'_>) -> bool {
    let (left, right) = if let Expr::BinOp(operation) = expression
        && matches!(operation.op, BinOpKind::Eq)
    {
        (&operation.left, &operation.right)
    } else if let Expr::Compare(chain) = expression
        && let [link] = chain.ops.as_slice()
        && matches!(link.op, CompareOpKind::Eq)
    {
        (&chain.expr, &link.expr)
    } else {
        return false;
    };
    matches!(left, Expr::Var(name) if name.id == "count")
        && matches!(right, Expr::Const(one) if one.value.as_i64() == Some(1))
}

/// The table that a statement prints, if its options are constant and there is nothing but `key`, `columns` and `repeats`.
fn table(statement: &Stmt<'_>) -> Option<Table> {
    let Stmt::EmitExpr(printed) = statement else { return None };
    let Expr::Filter(filter) = &printed.expr else { return None };
    let is_of_rows = matches!(&filter.expr, Some(Expr::Var(name)) if name.id == "rows");
    if filter.name != "toon" || !is_of_rows {
        return None;
    }
    let options = filter.args.iter().map(|argument| match argument {
        CallArg::Kwarg(name, value) => Some(((*name).to_owned(), constant(value)?)),
        CallArg::Pos(_) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
    });
    let options: Kwargs = options.collect::<Option<Vec<(String, Printed)>>>()?.into_iter().collect();
    let key: String = options.get("key").ok()?;
    let columns: Option<Printed> = options.get("columns").ok()?;
    let repeats: Option<bool> = options.get("repeats").ok()?;
    options.assert_all_used().ok()?;
    let columns = columns.map(|columns| picked_columns(&columns)).transpose().ok()?;
    Some(Table { key, columns, repeats: repeats.unwrap_or(true) })
}

/// The value of a literal.
fn constant(expression: &Expr<'_>) -> Option<Printed> {
    if let Expr::Const(constant) = expression {
        return Some(constant.value.clone());
    }
    if let Expr::List(list) = expression {
        return list.items.iter().map(constant).collect::<Option<Vec<_>>>().map(Printed::from);
    }
    let Expr::Map(map) = expression else { return None };
    let pairs = map.keys.iter().zip(&map.values);
    let pairs = pairs.map(|(key, value)| Some((constant(key)?, constant(value)?)));
    pairs.collect::<Option<Vec<_>>>().map(Printed::from_pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{
        render::table::{Column, Origin},
        sandbox,
    };

    /// Constants around the parts that a plan is recognised by.
    const ONE: &str = "{% if count == 1 %}";
    const SEVERAL: &str = "{% else %}\n{{ rows|toon(";
    const END_OF_SEVERAL: &str = ") }}\n{% endif %}";

    fn plan(source: &str) -> Option<Plan> {
        Plan::of(&sandbox::parse_template(source).ok()?)
    }

    #[test]
    fn the_options_are_read_once() {
        let source = "{% if count == 1 %}\na: {{ events[0].type }}\n{% else %}\n{{ rows|toon(key=\"k\", columns={\"a\": [\"b\", \"@type\"], \"c\": \"d\"}) }}\n{% endif %}\n";
        let column = |name: &str, from: &[&str]| Column {
            name: name.into(),
            from: from.iter().map(|name| Origin::named(name)).collect(),
        };
        let columns = vec![column("a", &["b", "@type"]), column("c", &["d"])];
        let table = Table { key: "k".into(), columns: Some(columns), repeats: true };
        assert_eq!(plan(source), Some(Plan { rows_min: 2, table }));
        let table = Table { key: "k".into(), columns: None, repeats: false };
        assert_eq!(plan(" {{ rows|toon(key=\"k\", repeats=false) }}\n"), Some(Plan { rows_min: 1, table }));
    }

    #[test]
    fn whatever_else_a_template_does_is_left_to_it() {
        let around =
            |words: &str, options: &str| format!("{ONE}\n{words}\n{SEVERAL}{options}{END_OF_SEVERAL}");
        assert!(plan(&around("a: 1", "key=\"k\"")).is_some());
        for source in [
            around("a: 1\n{% endif %}\n{% if repeats %}\nb: 1", "key=\"k\""),
            around("a: 1\n{% elif count == 3 %}\nb: 1", "key=\"k\""),
            around("a: 1\n{% if repeats %}\nb: 1", "key=\"k\"") + "\n{% endif %}",
            around("a: 1", "key=\"k\"").replace("count == 1", "count == 2"),
            around("a: 1", "key=\"k\"").replace("count == 1", "count < 2"),
            around("a: 1", "key=\"k\", indent=2"),
            around("a: 1", "key=subscriber.id"),
            around("a: 1", "key=\"k\" ~ count"),
            around("a: 1", "columns=[\"a\"]"),
            around("a: 1", "key=\"k\", columns=[]"),
            around("a: 1", "key=\"a\")|upper()"),
            around("a: 1", "key=\"k\") }}\nb: {{ rows|toon(key=\"l\""),
            around("a: 1", "key=\"k\"") + "\nb: 1",
            "b: 1\n{{ rows|toon(key=\"k\") }}".into(),
            "\u{a0}{{ rows|toon(key=\"k\") }}".into(),
            "{{ rows|toon }}".into(),
        ] {
            assert_eq!(plan(&source), None, "{source}");
        }
    }
}
