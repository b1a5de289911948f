//! Tests of the thread's start, failure and retry.

use super::*;

/// A journal of 800 records, and a file with the first 333 of them; if `is_of_another`, the file
/// does not belong to the journal.
fn behind(seed: u64, is_of_another: bool) -> (World, Writer, CatchUp) {
    let mut world = World::new(seed);
    world.go_on(800);
    let mut writer = catch_up::open(&world.path()).expect("opened");
    let mut catch_up = CatchUp::start(&world.source(), &mut writer).expect("readable");
    catch_up.advance(&mut writer, Seq(333)).expect("written");
    if is_of_another {
        execute(&world.path(), "UPDATE cursor SET at = at + 1");
        writer = catch_up::open(&world.path()).expect("opened");
    }
    (world, writer, catch_up)
}

/// Starts the thread, and checks the file after all records.
async fn run_to_the_end(projector: Projector, mut looped: Loop, world: &World, projection: &Projection) {
    let thread = projector.start().expect("started");
    looped.settle(world, projection).await;
    world.check_same();
    end(looped, thread);
    assert_eq!(projection.failed(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_notes_are_written_before_fed_notes() {
    for is_of_another in [false, true] {
        let (mut world, writer, CatchUp { mut fold, mut reader }) = behind(8, is_of_another);
        while fold.applied < *world.journal.written().borrow() {
            for found in reader.next_batch(100).expect("readable").iter() {
                fold.apply(&found).expect("applied");
                while fold.poll_output().is_some() {}
            }
        }
        assert!(
            fold.notes.as_ref().is_some_and(|missed| missed.from() == Seq(333) && missed.records() > 400)
        );
        let (projection, commands) = Projection::new(&world.path());
        let source = world.source();
        let (projector, feed) = Projector::new(projection.clone(), commands, source, Some(writer), &mut fold);
        let mut looped = Loop { fold, reader, feed };
        // Records appended before the thread starts join the notes of the start.
        world.go_on(50);
        while looped.turn(64) {}
        run_to_the_end(projector, looped, &world, &projection).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_far_behind_keeps_its_opened_file() {
    for is_of_another in [false, true] {
        let (world, writer, CatchUp { mut fold, reader }) = behind(13, is_of_another);
        // Such a replay takes no notes.
        fold.notes = None;
        let (projection, commands) = Projection::new(&world.path());
        let source = world.source();
        let (projector, feed) = Projector::new(projection.clone(), commands, source, Some(writer), &mut fold);
        // SQLite writes the log into the file, and deletes it, when the last connection is closed.
        let log = format!("{}-wal", world.path().display());
        assert!(Path::new(&log).exists(), "the file was closed");
        let looped = Loop { fold, reader, feed };
        run_to_the_end(projector, looped, &world, &projection).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_folder_is_reported_and_retried() {
    let mut world = World::new(9);
    world.go_on(300);
    let path = world.folder.path().join("later").join(FILE_NAME);
    let (projection, feed, thread) = start(&world, &path);
    let mut looped = Loop::new(&world, feed);
    while looped.turn(64) || projection.failed().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(projection.progress().projected(), Seq::ZERO);
    std::fs::create_dir(path.parent().expect("a folder")).expect("made");
    let own = projection.clone();
    let mut orders = tokio::task::JoinSet::new();
    orders.spawn(async move { own.rebuild().await });
    looped.settle(&world, &projection).await;
    drop(orders.join_next().await);
    looped.settle(&world, &projection).await;
    // It counts as healthy when it is fed again.
    while projection.failed().is_some() {
        looped.turn(64);
        tokio::task::yield_now().await;
    }
    assert_eq!(dump(&path), dump(&world.made_again()));
    end(looped, thread);
}

/// A projector that runs in no thread, after a failure whose backoff is longer than the test.
fn failed(world: &World) -> (Projection, Projector, Feed) {
    let (projection, commands) = Projection::new(&world.path());
    let mut fold = Fold::new(world.rules.clone());
    let (mut projector, feed) = Projector::new(projection.clone(), commands, world.source(), None, &mut fold);
    projector.backoff = BACKOFF_MAX;
    (projection, projector, feed)
}

#[tokio::test]
async fn event_loop_end_ends_wait_after_failure() {
    let world = World::new(14);
    let (_projection, mut projector, feed) = failed(&world);
    drop(feed);
    assert!(projector.step(Phase::Failed).await.expect("no error").is_none());
}

#[tokio::test]
async fn rebuild_command_ends_failure_wait_with_new_file() {
    let mut world = World::new(15);
    world.go_on(300);
    rebuild(&world.path(), BYTES_MAX, &world.source()).expect("rebuilt");
    let (projection, mut projector, _feed) = failed(&world);
    let (rebuilt, next) = tokio::join!(projection.rebuild(), projector.step(Phase::Failed));
    assert_eq!(rebuilt, Ok(()));
    let Ok(Some(Phase::Subscribing { writer, fold: None })) = next else { panic!("it has a file") };
    assert_eq!(writer.cursor(), Seq::ZERO);
}

#[tokio::test]
async fn records_deleted_during_failure_are_removed_on_opening() {
    let mut world = World::new(16);
    world.go_on(1_500);
    let mut batch = AppendBatch::new();
    batch.push_with(RecordKind(records::TICK), None, records::encode_bare).expect("small");
    world.journal.append_blocking(batch, Level::Synced).expect("appended");
    rebuild(&world.path(), BYTES_MAX, &world.source()).expect("rebuilt");
    assert!(world.journal.forget_before(Seq(1_000)).expect("forgotten") > 0, "there are segments before it");
    let first = world.journal.stored().expect("listed").first;
    let (projection, mut projector, _feed) = failed(&world);
    projection.forget_before(first).await;
    let opening = projector.step(Phase::Failed).await.expect("no error");
    let Some(opening @ Phase::Opening(None)) = opening else { panic!("a command is a try") };
    let next = projector.step(opening).await.expect("opened");
    assert!(matches!(next, Some(Phase::Subscribing { fold: None, .. })));
    let floor = projection.read_blocking(|view| Ok(view.floor)).expect("readable");
    assert_eq!(floor, first);
    let before = format!("SELECT count(*) FROM events WHERE seq < {first}");
    assert_eq!(number(&world.path(), &before), 0);
}

#[tokio::test]
async fn file_found_broken_during_failure_is_replaced() {
    let mut world = World::new(17);
    world.go_on(300);
    rebuild(&world.path(), BYTES_MAX, &world.source()).expect("rebuilt");
    break_events(&world.path());
    let (projection, mut projector, _feed) = failed(&world);
    let ask = |view: &View<'_>| view.events(&EventFilter::default(), 200).map(|_| ());
    projection.read(ask).await.expect_err("broken");
    let opening = projector.step(Phase::Failed).await.expect("no error").expect("a command is a try");
    let next = projector.step(opening).await.expect("opened");
    let Some(Phase::Subscribing { writer, fold: None }) = next else { panic!("it has a file") };
    assert_eq!(writer.cursor(), Seq::ZERO);
}

#[tokio::test]
async fn failure_backoff_doubles_up_to_a_minute() {
    let world = World::new(18);
    let (projection, mut projector, _feed) = failed(&world);
    projector.backoff = BACKOFF_MIN;
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(projector.backoff.as_secs());
        projection.forget_before(Seq::ZERO).await;
        projector.step(Phase::Failed).await.expect("no error");
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
}
